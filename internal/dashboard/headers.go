package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"runtime/debug"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
)

// contentSecurityPolicy allows a page what it needs: files of our own, and nothing inline.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; object-src 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"mutexdash"

// headers puts the security headers on every answer, errors included. They are set, not added: what a web server in
// front of the handler (exporter-toolkit's headers) has set to the same names is replaced.
func (d *Dashboard) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer") // names are in addresses
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
		h.Set("X-Robots-Tag", "noindex, nofollow")
		h.Set("Cache-Control", "no-store")
		if d.app.Config.HSTS > 0 && r.TLS != nil { // behind a proxy that ends TLS it is for the proxy to say
			h.Set("Strict-Transport-Security", fmt.Sprintf("max-age=%d", int(d.app.Config.HSTS.Seconds())))
		}
		next.ServeHTTP(w, r)
	})
}

// crossOrigin refuses requests of other sites: all that would change something, and all others but those that show a
// person a page. Browsers say where a request comes from; what comes from elsewhere does not say it.
func (d *Dashboard) crossOrigin() (func(http.Handler) http.Handler, error) {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(d.refuseOrigin))
	if origin := d.app.URLs.Origin; origin != "" {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("the external URL cannot be an origin: %w", err)
		}
	}
	return func(next http.Handler) http.Handler {
		changing := protection.Handler(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isRead(r) && !mayRead(r.Header) {
				d.refuseOrigin(w, r)
				return
			}
			changing.ServeHTTP(w, r)
		})
	}, nil
}

// mayRead reports whether a reading request comes from ourselves or from no site, or leads a person here. Another site
// could not read the answer to anything else, but would have us work for it.
func mayRead(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
}

func (d *Dashboard) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	made := d.app.RequestFrom(r)
	c := made.Caller
	if logged, leftOut := d.app.Refusals.ShouldLog(c.Name, made.Now); logged {
		app.WithLeftOut(d.app.Config.Log.Warn(), leftOut).
			Str("path", app.LogText(r.URL.Path)).Str("origin", app.LogText(r.Header.Get("Origin"))).
			Str("actor", c.Name).Str("client", c.Client).Msg("a request from another site was refused")
	}
	if o := d.operationAt(r.URL.Path); o != nil && !isRead(r) {
		o.CountDenied()
	}
	d.fail(w, r, app.ErrCrossOrigin)
}

// recovery answers a request whose handler panicked; the stack goes into the log, not into the response.
func (d *Dashboard) recovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			d.app.Config.Log.Error().Any("panic", cause).Bytes("stack", debug.Stack()).Str("path", r.URL.Path).
				Msg("request panicked")
			d.fail(w, r, app.ErrInternal)
		}()
		next.ServeHTTP(w, r)
	})
}

// assets are the embedded files. Each is compressed once, when somebody first asks for it.
type assets struct {
	fingerprint string
	files       map[string]asset
}

type asset struct {
	kind       string
	plain      []byte
	compressed func() []byte
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
		a.files[e.Name()] = asset{assetType(e.Name()), b,
			sync.OnceValue(func() []byte { return compress(newGzipWriter(gzip.BestCompression), b) })}
	}
	a.fingerprint = hex.EncodeToString(sum.Sum(nil))[:12]
	return a, nil
}

// compact drops indentation and lines that are only a comment.
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
func (d *Dashboard) asset(r *app.Request) (app.Answer, error) {
	file, ok := d.assets.files[chi.URLParam(r.Request, "file")]
	if !ok || chi.URLParam(r.Request, "fingerprint") != d.assets.fingerprint {
		return app.Answer{}, app.ErrNotFound
	}
	a := app.Answer{Type: file.kind, Body: file.plain,
		Header: map[string]string{"Cache-Control": "public, max-age=31536000, immutable"}}
	if acceptsGzip(r.Request) {
		a.Body, a.Header["Content-Encoding"] = file.compressed(), "gzip"
	}
	return a, nil
}
