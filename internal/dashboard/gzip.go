package dashboard

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// minGzip is the size from which compressing is worth it.
const minGzip = 1 << 10

func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(encoding, " ", ""), ";")
		if name == "gzip" {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// gzip compresses an answer. Writers are pooled, because each takes a megabyte.
func (d *Dashboard) gzip(b []byte) []byte {
	z, ok := d.gzipWriters.Get().(*gzip.Writer)
	if !ok {
		z = newGzipWriter(gzip.BestSpeed)
	}
	defer d.gzipWriters.Put(z)
	return compress(z, b)
}

func newGzipWriter(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(io.Discard, level)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return z
}

func compress(z *gzip.Writer, b []byte) []byte {
	var out bytes.Buffer
	z.Reset(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	z.Reset(io.Discard) // the packer must not keep the answer
	return out.Bytes()
}
