package gateway

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// file is docs/protocol/transactions.json or kinds.json, which vectors.md and kinds.md there describe.
type file struct {
	Protocol     int
	Prefix       string
	Transactions []transaction
	Verdicts     []json.RawMessage
}

type transaction struct {
	About, Step string
	Input       input
	Body        json.RawMessage
}

type input struct {
	Lock, UUID, Token, Ticket, Lease, Position, Before, Seen string
	Kind, Counted, Taken                                     string

	Limit, Weight, Share int
	Queued               bool
	Older                *waiter
	Fields               fields
	Locks                []struct {
		Lock, UUID string
		Fields     fields
	}
}

// waiter is a ticket, as it is compared and named by a tail.
type waiter struct {
	Ticket         string `json:"ticket"`
	CreateRevision string `json:"create_revision"`
	Lease          string `json:"lease"`
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

// record are the fields as those of a record, in their order.
func (f fields) record() (all []metadata.Field) {
	for _, one := range f {
		all = append(all, metadata.Field{Name: one.name, Value: one.value})
	}
	return all
}

// readFile reads a file with at least so many transactions and verdicts.
func readFile(t *testing.T, name string, transactions, verdicts int) file {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol/" + name)
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
		t.Fatalf("%s is of protocol %d with prefix %q", name, f.Protocol, f.Prefix)
	}
	if len(f.Transactions) < transactions || len(f.Verdicts) < verdicts {
		t.Fatalf("%s has only %d transactions and %d verdicts", name, len(f.Transactions), len(f.Verdicts))
	}
	return f
}
