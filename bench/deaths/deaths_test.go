package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestACutterPassesNothingUntilItIsHealed(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	c, err := newCutter(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	conn, err := net.Dial("tcp", c.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := make(chan string)
	go func() {
		for {
			b := make([]byte, 1)
			if _, err := io.ReadFull(conn, b); err != nil {
				close(answers)
				return
			}
			answers <- string(b)
		}
	}()
	say := func(word string) {
		if _, err := io.WriteString(conn, word); err != nil {
			t.Fatal(err)
		}
	}
	say("a")
	if got := <-answers; got != "a" {
		t.Fatalf("before the cut: %q", got)
	}
	c.cut()
	say("b")
	select {
	case got := <-answers:
		t.Fatalf("during the cut: %q", got)
	case <-time.After(100 * time.Millisecond):
	}
	c.heal()
	if got := <-answers; got != "b" {
		t.Errorf("after the cut: %q", got)
	}
}

func TestTheTablesShowWhatWasMeasured(t *testing.T) {
	cases := []*contender{
		{name: "a", waits: []time.Duration{3 * time.Second, 20 * time.Millisecond, 40 * time.Millisecond},
			cutOff: true, cut: cutResult{kept: true}},
		{name: "b", waits: []time.Duration{9 * time.Second, 10 * time.Second}, cutOff: true,
			cut: cutResult{taken: 10500 * time.Millisecond, noticed: 10 * time.Second}},
		{name: "c"},
	}
	for _, row := range []string{"| a | 3 | 20 ms | 40 ms | 3.0 s |\n", "| b | 2 | 9.0 s | 9.5 s | 10.0 s |\n"} {
		if got := deathTable(cases); !strings.Contains(got, row) {
			t.Errorf("no %q in %s", row, got)
		}
	}
	for _, row := range []string{
		"| a | no | – | the holder still has it |\n",
		"| b | after 10.5 s | after 10.0 s | it is lost |\n",
	} {
		if got := cutTable(30*time.Second, cases); !strings.Contains(got, row) || strings.Contains(got, "| c |") {
			t.Errorf("no %q in %s", row, got)
		}
	}
}
