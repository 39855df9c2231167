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
	Verdicts     []json.RawMessage
}

type transaction struct {
	About, Step string
	Input       input
	Body        json.RawMessage
}

type input struct {
	Lock, UUID, Token, Ticket, Lease, Position, Before, Seen string

	Fields fields
	Older  *waiter
	Queued bool
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
