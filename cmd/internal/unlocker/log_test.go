package unlocker

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestHistoryIsTrimmedEveryMinuteDespiteErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		trims := 0
		trim := func(context.Context) (int, error) {
			trims++
			if trims == 2 {
				return 0, errors.New("etcd is away")
			}
			return 7, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- trimRegularly(ctx, trim, zerolog.New(&out)) }()
		time.Sleep(10*time.Minute + time.Second)
		cancel()
		proctest.Must(t, <-ended)
		if trims < 10 || trims > 11 {
			t.Errorf("%d times in ten minutes", trims)
		}
		if n := strings.Count(out.String(), "etcd is away"); n != 1 {
			t.Errorf("the problem is logged %d times:\n%s", n, out.String())
		}
	})
}
