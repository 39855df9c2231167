package proctest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const roleVariable = "PROCTEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "child":
		proctest.EndWithParent()
		fmt.Println("ready")
		select {}
	case "parent": // of a child that stands still, to which it says nothing in the end
		child, err := proctest.Launch(proctest.Self(roleVariable, "child"))
		if err != nil {
			panic(err)
		}
		child.Pause()
		fmt.Println(child.PID())
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(3)
	}
}

func TestNothingOutlivesTheTest(t *testing.T) {
	cmd := proctest.Self(roleVariable, "parent")
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	parent := proctest.Start(t, cmd)
	child := parent.NextLine(t)
	if _, err := keys.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if code := parent.Wait(t); code != 3 || parent.Running() {
		t.Errorf("exit code %d, running %v", code, parent.Running())
	}
	proctest.Eventually(t, "the end of its child", func() error {
		state, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
		if errors.Is(err, fs.ErrNotExist) || strings.Contains(string(state), ") Z ") {
			return nil
		}
		return errors.Join(fmt.Errorf("its state is %s", state), err)
	})
}
