package mutexdash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// webhook returns a function that posts JSON to the address. No part of the address comes from a lock, and redirects
// are not followed. Errors do not contain the address, which may hold a secret.
func webhook(address string) (func(context.Context, []byte) error, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "" {
		return nil, errors.New("--web.unlock-webhook is not of the form https://host/path")
	}
	client := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, notice []byte) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(notice))
		if err != nil {
			return errors.New("the request cannot be created")
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("User-Agent", "mutexdash")
		resp, err := client.Do(r)
		var where *url.Error
		if errors.As(err, &where) {
			return fmt.Errorf("%s: %w", u.Hostname(), where.Err)
		}
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.CopyN(io.Discard, resp.Body, 1<<10) // only the status counts
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s answers %s", u.Hostname(), resp.Status)
		}
		return nil
	}, nil
}
