package protocol_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestWhatAWitnessSaysIsOneSentence(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		s    metadata.Statement
		want string
	}{
		{metadata.Statement{Cause: metadata.CauseContainerEnded, EndedAt: metadata.Time{Time: at}, ExitCode: code(137),
			Detail: "OOMKilled"}, "its container ended 40s ago with exit code 137 (OOMKilled)"},
		{metadata.Statement{Cause: metadata.CauseProcessEnded, At: metadata.Time{Time: at}, Signal: "SIGKILL"},
			"its process ended 40s ago by SIGKILL"},
		{metadata.Statement{Cause: metadata.CausePodEnded, EndedAt: metadata.Time{Time: at}, ExitCode: code(0)},
			"its pod ended 40s ago with exit code 0"},
		{metadata.Statement{Cause: metadata.CauseRebooted}, "its machine was rebooted"},
		{metadata.Statement{Cause: metadata.CauseContainerRestarted, Detail: "Error"},
			"its container ended and was restarted (Error)"},
		{metadata.Statement{Cause: metadata.CausePodDeleted}, "its pod was deleted"},
		{metadata.Statement{Cause: "node_on_fire"}, "node_on_fire"},
		{metadata.Statement{Cause: "\x1b[2J", Detail: "\u202e" + strings.Repeat("x", 9999)},
			`\x1b[2J (\u202e` + strings.Repeat("x", 97) + "…)"},
	} {
		if got := protocol.HowItEnded(&c.s, at.Add(40*time.Second)); got != c.want {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
	}
}

func TestAStatementThatNamesAnotherHoldThanItsKeyIsNotRead(t *testing.T) {
	const mine, other = "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b12"
	s := metadata.Statement{Lock: "a", UUID: mine, Token: 7, Cause: metadata.CauseProcessEnded}
	kv := protocol.KV{Value: []byte(protocol.Marshal(s)), ModRevision: 9}
	if got := protocol.ReadStatement(mine, kv); got == nil || got.UUID != mine || got.Revision != 9 {
		t.Errorf("of its own hold: %+v", got)
	}
	if got := protocol.ReadStatement(other, kv); got != nil {
		t.Errorf("below the key of another hold: %+v", got)
	}
}
