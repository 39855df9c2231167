package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"

	"github.com/go-chi/chi/v5"

	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// assets are the embedded files, compressed once at start.
type assets struct {
	fingerprint string
	files       map[string]asset
}

type asset struct {
	kind          string
	plain, packed []byte
}

// loadAssets reads the files. They share one fingerprint, so that scripts can import each other by name.
func loadAssets(files fs.FS) (assets, error) {
	a := assets{files: map[string]asset{}}
	sum := sha256.New()
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return a, err
	}
	for _, e := range entries {
		b, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return a, err
		}
		b = compact(b)
		sum.Write([]byte(e.Name()))
		sum.Write(b)
		a.files[e.Name()] = asset{assetType(e.Name()), b, pack(newPacker(gzip.BestCompression), b)}
	}
	a.fingerprint = hex.EncodeToString(sum.Sum(nil))[:12]
	return a, nil
}

// compact leaves out what only readers of a source need: indentation, and lines that are nothing but a comment.
func compact(source []byte) []byte {
	var kept bytes.Buffer
	for line := range bytes.Lines(source) {
		line = bytes.TrimSpace(line)
		comment := bytes.HasPrefix(line, []byte("//")) || bytes.HasPrefix(line, []byte("/*")) &&
			bytes.HasSuffix(line, []byte("*/"))
		if len(line) > 0 && !comment {
			kept.Write(line)
			kept.WriteByte('\n')
		}
	}
	return kept.Bytes()
}

func assetType(name string) string {
	if path.Ext(name) == ".css" {
		return "text/css; charset=utf-8"
	}
	return "text/javascript; charset=utf-8"
}

// asset answers with an embedded file. The address holds the fingerprint, so browsers keep it forever; one of another
// build is not there.
func (d *Dashboard) asset(r *site.Request) (site.Answer, error) {
	file, ok := d.assets.files[chi.URLParam(r.Request, "file")]
	if !ok || chi.URLParam(r.Request, "fingerprint") != d.assets.fingerprint {
		return site.Answer{}, site.ErrNotFound
	}
	a := site.Answer{Type: file.kind, Body: file.plain,
		Header: map[string]string{"Cache-Control": "public, max-age=31536000, immutable"}}
	if acceptsGzip(r.Request) {
		a.Body, a.Header["Content-Encoding"] = file.packed, "gzip"
	}
	return a, nil
}
