package dashboard

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

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
