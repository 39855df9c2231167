package servers

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
)

// Program starts one of our programs and returns once the address ready answers 200.
func Program(ctx context.Context, dir, binary, ready string, args ...string) (*Process, error) {
	name := filepath.Base(binary)
	dir, err := makeDir(dir, name)
	if err != nil {
		return nil, err
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return nil, err
	}
	return start(ctx, name, "", dir, exec.Command(binary, args...), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, ready, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not ready: %s", name, resp.Status)
		}
		return nil
	})
}
