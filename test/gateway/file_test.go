package gateway

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// file is docs/protocol/transactions.json, which docs/protocol/vectors.md describes.
type file struct {
	Protocol     int
	Prefix       string
	Transactions []transaction
	Verdicts     []verdictCase
}

type transaction struct {
	About, Step string
	Input       input
	Body        json.RawMessage
}

type input struct {
	Lock, UUID, Token, Ticket, Lease, Position, Before, Seen string

	Fields             fields
	Older              *waiter
	Queued, Unanswered bool
}

// waiter is a ticket, as it is compared and named by a tail.
type waiter struct {
	Ticket         string `json:"ticket"`
	CreateRevision string `json:"create_revision"`
	Lease          string `json:"lease"`
}

type verdictCase struct {
	About, Step string
	Input       input
	Answer      answer
	verdict
}

type answer struct {
	Status int
	Body   json.RawMessage
	Text   string
	None   bool
}

// verdict is what an answer means. Members that are absent are not checked, except for those that are about nothing
// else than this verdict.
type verdict struct {
	Verdict  string  `json:"verdict"`
	Token    string  `json:"token,omitempty"`
	Position string  `json:"position,omitempty"`
	Before   string  `json:"before,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Watch    string  `json:"watch,omitempty"`
	Holder   *string `json:"holder,omitempty"`
	Delayed  bool    `json:"delayed,omitempty"`
	Doubt    bool    `json:"doubt,omitempty"`
	Older    *waiter `json:"older,omitempty"`
	Restore  *waiter `json:"restore,omitempty"`
}

// fields are those of a record, in the order of the file.
type fields []field

type field struct{ name, value string }

// UnmarshalJSON keeps the order, which that of the puts follows.
func (f *fields) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		value, err := decoder.Token()
		if err != nil {
			return err
		}
		*f = append(*f, field{name.(string), value.(string)})
	}
	return nil
}

func (f fields) get(name string) string {
	for _, field := range f {
		if field.name == name {
			return field.value
		}
	}
	return ""
}

func readFile(t *testing.T) file {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol/transactions.json")
	if err != nil {
		t.Fatal(err)
	}
	var f file
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		t.Fatal(err)
	}
	if f.Protocol != 1 || f.Prefix != "/mutexes/" {
		t.Fatalf("the file is of protocol %d with prefix %q", f.Protocol, f.Prefix)
	}
	if len(f.Transactions) < 25 || len(f.Verdicts) < 100 {
		t.Fatalf("the file has only %d transactions and %d verdicts", len(f.Transactions), len(f.Verdicts))
	}
	return f
}
