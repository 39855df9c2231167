package dashboard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// Limits of answers that are sent while they are made, and of complete ones that wait for their readers.
const (
	maxStreams   = 16
	pieceSize    = 32 << 10
	pieceWithin  = 10 * time.Second // in which a piece has to be taken
	streamWithin = 5 * time.Minute
	smallAnswer  = 64 << 10
	maxWaiting   = 64 << 20 // bytes of all answers that are not small
)

// stream sends an answer while it is made. One that ends early is cut off, so that a part does not pass for the whole.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request, a site.Answer) {
	if r.Method == http.MethodHead {
		return
	}
	pieces := bufio.NewWriterSize(&pieceWriter{w: w, control: http.NewResponseController(w),
		end: time.Now().Add(streamWithin)}, pieceSize)
	var err error
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, done := d.packer(pieces)
		defer done()
		err = errors.Join(a.Stream(z), z.Close())
	} else {
		err = a.Stream(pieces)
	}
	if errors.Join(err, pieces.Flush()) != nil {
		panic(http.ErrAbortHandler)
	}
}

// pieceWriter gives the reader time for each piece.
type pieceWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	end     time.Time
}

func (p *pieceWriter) Write(b []byte) (int, error) {
	now := time.Now()
	if now.After(p.end) {
		return 0, errors.New("the reader took too long")
	}
	_ = p.control.SetWriteDeadline(now.Add(pieceWithin)) // a writer without a network has none
	return p.w.Write(b)
}

// room reports whether there is room for another answer to wait for its reader; done gives the room back.
func (d *Dashboard) room(size int) (done func(), ok bool) {
	if size <= smallAnswer {
		return func() {}, true
	}
	done = func() { d.outgoing.Add(-int64(size)) }
	if d.outgoing.Add(int64(size)) > maxWaiting {
		done()
		return nil, false
	}
	return done, true
}

// acceptsGzip reports whether a browser takes answers that are packed.
func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(encoding, " ", ""), ";")
		if name == "gzip" {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// packer returns a packer, whose tables take a megabyte, for one answer; done gives it back.
func (d *Dashboard) packer(w io.Writer) (z *gzip.Writer, done func()) {
	z, ok := d.packers.Get().(*gzip.Writer)
	if !ok {
		z = newPacker(gzip.BestSpeed)
	}
	z.Reset(w)
	return z, func() {
		z.Reset(io.Discard)
		d.packers.Put(z)
	}
}

func newPacker(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(io.Discard, level)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return z
}

// packed is an answer that is complete.
func (d *Dashboard) packed(b []byte) []byte {
	z, done := d.packer(io.Discard)
	defer done()
	return pack(z, b)
}

func pack(z *gzip.Writer, b []byte) []byte {
	var out bytes.Buffer
	z.Reset(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}
