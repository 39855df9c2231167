package mutex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// urgency asks holders to finish because somebody waits with [Urgent]. Without a reason it asks nobody.
type urgency struct {
	c      *Client
	lock   string
	kind   kind
	by     string // the owner who waits
	reason string

	asked []string // uuids of present holders that need not be asked again
}

// ask asks each of the present holders that is in the way, once.
func (u *urgency) ask(ctx context.Context, w Waiting) {
	if u.reason == "" {
		return
	}
	present := w.Holders
	if len(present) == 0 && w.Holder.Token != 0 {
		present = []metadata.Document{w.Holder}
	}
	u.asked = slices.DeleteFunc(u.asked, func(uuid string) bool {
		return !slices.ContainsFunc(present, func(d metadata.Document) bool { return d.UUID == uuid })
	})
	ctx, cancel := context.WithTimeout(ctx, u.c.opts.RequestTimeout)
	defer cancel()
	for _, d := range u.kind.inTheWay(u.lock, present) {
		if !slices.Contains(u.asked, d.UUID) && u.askOne(ctx, &d) {
			u.asked = append(u.asked, d.UUID)
		}
	}
}

// askOne asks one holder. It reports whether that is settled: etcd took or refused it, or the holder has been asked.
func (u *urgency) askOne(ctx context.Context, d *metadata.Document) bool {
	r := metadata.Request{UUID: d.UUID, Token: d.Token, By: u.by, Source: metadata.SourceWaiter,
		At: metadata.Time{Time: u.c.wall()}, Reason: u.reason}
	shorten(&r)
	_, err := u.c.retry.Send(ctx, locktxn.AskOnce(u.c.layout, d.Name, r))
	if err == nil {
		return true
	}
	final := locktxn.Refused(err) || locktxn.NoSpace(err)
	if final {
		u.c.log(slog.LevelWarn, "the holder was not asked to finish", slog.String("lock", d.Name),
			slog.String("uuid", d.UUID), slog.Any("error", err))
	}
	return final
}

// shorten makes a request small enough for its readers.
func shorten(r *metadata.Request) {
	for most := metadata.MaxTextBytes; len(protocol.Marshal(*r)) > metadata.MaxDocumentBytes; most /= 2 {
		r.By = text.Clip(r.By, most)
		r.Reason = text.Clip(r.Reason, most)
	}
}

// checkReason returns what is wrong with the reason of a request.
func checkReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return errors.New("an urgent wait needs a reason: the holder is asked to finish because of it")
	case len(reason) > metadata.MaxTextBytes, !utf8.ValidString(reason),
		strings.ContainsFunc(reason, unicode.IsControl):
		return fmt.Errorf("the reason of an urgent wait must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}
