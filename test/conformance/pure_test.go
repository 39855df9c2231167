//go:build conformance

package conformance

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// pureChecks need no etcd: the test vectors and the transactions.
var pureChecks = []check{
	{name: "vectors: names", rule: "protocol.md#lock-names", short: true,
		wants: "names are written as segments and read back, and bad ones are refused", alone: vectorNames},
	{name: "vectors: times", rule: "protocol.md#times", short: true,
		wants: "times are read as these instants, and other text is refused", alone: vectorTimes},
	{name: "vectors: records", rule: "protocol.md#the-record", needs: "decode", short: true,
		wants: "a record is read, whatever is wrong with it", alone: vectorRecords},
	{name: "transactions: bodies", rule: "protocol.md#transactions", needs: "transactions", short: true,
		wants: "each step has exactly this transaction", alone: bodiesOf("transactions.json")},
	{name: "transactions: verdicts", rule: "protocol.md#errors-are-not-answers", needs: "transactions", short: true,
		wants: "each answer means exactly this", alone: verdictsOf("transactions.json")},
}

// vectors is docs/protocol/vectors.json, as far as clients read it.
type vectors struct {
	Names        []struct{ About, Name, Segment string }
	RefusedNames []struct {
		About, Name string
		Bytes       string `json:"name_base64"`
	} `json:"refused_names"`
	RefusedSegments []struct{ About, Segment string } `json:"refused_segments"`
	Times           []struct {
		About, Text          string
		Seconds, Nanoseconds int64
	}
	RefusedTimes []struct{ About, Text string } `json:"refused_times"`
	Records      []struct {
		About, Lock     string
		Fields, Foreign json.RawMessage // as they are in the file
		Decoded         map[string]any
		Problems        []any
		Malformed       bool
	}
	Requests, Extensions, Acknowledgements []vectorDocument
	Tickets, Endings, Delays               []vectorDocument
}

func readProtocol[T any](t *testing.T, file string) (content T) {
	text, err := os.ReadFile(filepath.Join(*protocolDir, file))
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	proctest.Must(t, err)
	return content
}

func vectorNames(t *testing.T, _ *scene, c *client) {
	v := readProtocol[vectors](t, "vectors.json")
	d := c.start(t)
	for _, n := range v.Names {
		if a := d.do(request{"do": "segment", "name": n.Name}); a.Error != "" || a.Segment != n.Segment {
			t.Errorf("%s: the segment of %q is %s, want %q", n.About, n.Name, a.line, n.Segment)
		}
		if a := d.do(request{"do": "name", "segment": n.Segment}); a.Error != "" || a.Name != n.Name {
			t.Errorf("%s: the name of %q is %s, want %q", n.About, n.Segment, a.line, n.Name)
		}
	}
	for _, n := range v.RefusedNames {
		asks := request{"do": "segment", "name": n.Name}
		if n.Bytes != "" {
			asks = request{"do": "segment", "name_base64": n.Bytes}
		}
		if a := d.do(asks); a.Error != "refused" {
			t.Errorf("%s: %q %s gives %s, want refused", n.About, n.Name, n.Bytes, a.line)
		}
	}
	for _, s := range v.RefusedSegments {
		if a := d.do(request{"do": "name", "segment": s.Segment}); a.Error != "refused" {
			t.Errorf("%s: %q gives %s, want refused", s.About, s.Segment, a.line)
		}
	}
}

func vectorTimes(t *testing.T, _ *scene, c *client) {
	v := readProtocol[vectors](t, "vectors.json")
	d := c.start(t)
	for _, at := range v.Times {
		a := d.do(request{"do": "time", "text": at.Text})
		if want := json.Number(jsonOf(at.Seconds)); a.Error != "" || a.Seconds != want.String() ||
			a.Nanoseconds != at.Nanoseconds {
			t.Errorf("%s: %q gives %s, want %d s and %d ns", at.About, at.Text, a.line, at.Seconds, at.Nanoseconds)
		}
	}
	for _, at := range v.RefusedTimes {
		if a := d.do(request{"do": "time", "text": at.Text}); a.Error != "refused" {
			t.Errorf("%s: %q gives %s, want refused", at.About, at.Text, a.line)
		}
	}
}

// decodedMembers are what clients read of a record, to say who holds a lock.
var decodedMembers = []string{"uuid", "owner", "hostname", "purpose", "alert_at", "auto_unlock_at", "locked_at"}

func vectorRecords(t *testing.T, _ *scene, c *client) {
	v := readProtocol[vectors](t, "vectors.json")
	d := c.start(t)
	for _, r := range v.Records {
		asks := request{"do": "decode", "lock": r.Lock, "fields": r.Fields}
		if r.Foreign != nil {
			asks["foreign"] = r.Foreign
		}
		a := d.do(asks)
		if a.Error != "" {
			t.Errorf("%s: %s\nof %.2000s", r.About, a.line, jsonOf(asks))
			continue
		}
		if bytes, ok := r.Decoded["owner_base64"].(string); ok {
			text, _ := base64.StdEncoding.DecodeString(bytes)
			r.Decoded["owner"] = string(text)
		}
		for _, member := range decodedMembers {
			if diff := cmp.Diff(read(r.Decoded[member]), read(a.Decoded[member])); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s\nof %.2000s", r.About, member, diff, jsonOf(asks))
			}
		}
		if a.Malformed != r.Malformed {
			t.Errorf("%s: malformed is %v, want %v, of %.2000s", r.About, a.Malformed, r.Malformed, jsonOf(asks))
		}
	}
}

// read is a member as a client may say it: a time to the millisecond, and no text that is not UTF-8.
func read(member any) any {
	text, isText := member.(string)
	if !isText || len(text) < len("1553682600.000") {
		return valid(member)
	}
	if _, err := metadata.ParseTime(text); err != nil {
		return valid(member)
	}
	return strings.TrimRight(text[:len("1553682600.000")], "0")
}

// valid has one U+FFFD for bytes that are not UTF-8, however many there are: languages count them differently.
func valid(value any) any {
	text, isText := value.(string)
	if !isText {
		return value
	}
	text = strings.ToValidUTF8(text, "\ufffd")
	for strings.Contains(text, "\ufffd\ufffd") {
		text = strings.ReplaceAll(text, "\ufffd\ufffd", "\ufffd")
	}
	return text
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

type transactions struct {
	Transactions []struct {
		About, Step string
		Input       json.RawMessage
		Body        any
	}
	Verdicts []map[string]any
}

// sends reports whether a client of these levels has the step: one that does not queue has no steps of a queue.
func (c *client) sends(step string, given json.RawMessage) bool {
	var input struct {
		Queued bool
		Seen   string
	}
	if err := json.Unmarshal(given, &input); err != nil {
		panic(err)
	}
	switch step {
	case "acquire", "alive", "release", "cancel", "withdraw":
		return (!input.Queued || c.claims("queue")) && (input.Seen == "" || c.claims("heartbeat"))
	}
	return c.claims("queue")
}

func bodiesOf(file string) func(*testing.T, *scene, *client) {
	return func(t *testing.T, _ *scene, c *client) {
		d := c.start(t)
		for _, x := range readProtocol[transactions](t, file).Transactions {
			if !c.sends(x.Step, x.Input) {
				continue
			}
			a := d.do(request{"do": "transaction", "step": x.Step, "input": x.Input})
			var body any
			if err := json.Unmarshal(a.Body, &body); err != nil || a.Error != "" {
				t.Errorf("%s: %s", x.About, a.line)
				continue
			}
			if diff := cmp.Diff(inOneOrder(x.Body), inOneOrder(body)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", x.Step, x.About, diff)
			}
		}
	}
}

// inOneOrder sorts the puts at the beginning of a branch behind the first three, where the record's other fields are: a
// JSON parser may have lost their order.
func inOneOrder(body any) any {
	transaction, isObject := body.(map[string]any)
	if !isObject {
		return body
	}
	operations, isList := transaction["success"].([]any)
	if !isList {
		return body
	}
	puts := slices.IndexFunc(operations, func(operation any) bool {
		object, isPut := operation.(map[string]any)
		return !isPut || object["request_put"] == nil
	})
	if puts < 0 {
		puts = len(operations)
	}
	if puts > 3 {
		slices.SortFunc(operations[3:puts], func(a, b any) int { return strings.Compare(jsonOf(a), jsonOf(b)) })
	}
	return body
}

// verdictsOf wants the verdict and the token. The other members of a verdict may be left out; what is said has to be
// right.
func verdictsOf(file string) func(*testing.T, *scene, *client) {
	return func(t *testing.T, _ *scene, c *client) {
		d := c.start(t)
		for _, x := range readProtocol[transactions](t, file).Verdicts {
			if !c.sends(x["step"].(string), json.RawMessage(jsonOf(x["input"]))) {
				continue
			}
			a := d.do(request{"do": "verdict", "step": x["step"], "input": x["input"], "answer": x["answer"]})
			got := map[string]any{}
			if err := json.Unmarshal([]byte(a.line), &got); err != nil || a.Error != "" {
				t.Errorf("%s: %s: %s", x["step"], x["about"], a.line)
				continue
			}
			for member, want := range x {
				switch member {
				case "about", "step", "input", "answer":
					continue
				}
				said, isSaid := got[member]
				if object, isObject := said.(map[string]any); isObject && member == "holder" {
					said = object["uuid"] // as in the answer to an acquire
				}
				if isSaid && said != nil || member == "verdict" || member == "token" {
					if diff := cmp.Diff(want, said); diff != "" {
						t.Errorf("%s: %s: %s (-want +got):\n%s", x["step"], x["about"], member, diff)
					}
				}
			}
		}
	}
}
