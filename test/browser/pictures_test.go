//go:build browser

package browser

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestPictures makes the pictures of the documentation, each of a page that says what it is to show.
func TestPictures(t *testing.T) {
	s := unlockStage(t)
	b := newTab(t, s)
	b.login("ann@example.org")
	s.unlocker("auto-unlock")
	s.night()
	s.nights()

	b.theme("light")
	b.size(1280, 800)
	b.open(s.url)
	b.until("the answer", `document.querySelector(".headline .step")`)
	b.picture("list-light")
	b.theme("dark")
	b.picture("list-dark")
	b.theme("light")

	b.size(390, 780)
	b.open(s.url)
	b.picture("phone")

	b.size(1280, 1000)
	b.open(s.url + "lock?name=billing/invoice-run")
	b.until("the own code", `document.querySelector(".first").textContent.includes("invoice_run.rb:118")`)
	b.until("how long it takes usually",
		`document.getElementById("main").textContent.includes("holds seen")`)
	b.picture("lock")

	b.click(".todo .last a")
	b.until("the page that asks", `document.readyState === "complete" && document.querySelector("form.force")`)
	b.do(typeInto("#typed", held), typeInto("#reason", "The pod has been gone since 02:51, BILL-2207"))
	b.whole()
	b.picture("force-unlock")

	b.open(s.url + "lock?name=media/transcoders")
	b.until("the holders", `document.querySelectorAll(".locks .name").length === 2`)
	b.whole()
	b.picture("semaphore")

	s.hour()
	b.open(s.url + "timeline?window=1h")
	b.until("who held", `document.querySelectorAll(".lane").length > 11`)
	b.whole()
	b.picture("timeline")

	s.circle()
	b.open(s.url + "waiting")
	b.until("the circle", `document.querySelector(".cycle li:nth-child(2)")`)
	b.whole()
	b.picture("waiting")

	b.open(s.url)
	b.until("the list", `document.querySelectorAll(".locks .name").length === 14`)
	s.etcd.Stop()
	b.until("stale", `document.body.classList.contains("stale")`, 60*time.Second)
	b.whole()
	b.picture("stale")
}

// screen is what the tab shows.
func (b *tab) screen() image.Image {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, proctest.Timeout)
	defer cancel()
	raw, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	b.check(err)
	picture, err := png.Decode(bytes.NewReader(raw))
	b.check(err)
	return picture
}

// whole makes the window as high as the page.
func (b *tab) whole() {
	b.t.Helper()
	b.size(1280, 400)
	b.size(1280, ask[int64](b, `document.documentElement.scrollHeight`))
}

// maxPicture is how large a picture may be: they are the first thing that people load.
const maxPicture = 150 << 10

// writePicture writes a picture into a file.
func writePicture(of image.Image, dir, name string) error {
	var packed bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&packed, of); err != nil {
		return err
	}
	if packed.Len() > maxPicture {
		return fmt.Errorf("%s is %d bytes, want at most %d", name, packed.Len(), maxPicture)
	}
	return os.WriteFile(filepath.Join(dir, name+".png"), packed.Bytes(), 0o644)
}

// picture writes what the tab shows into a file, with few colours.
func (b *tab) picture(name string) {
	b.t.Helper()
	ask[bool](b, `document.activeElement.blur() || Promise.all(document.getAnimations().map((a) => a.finished))
		.then(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))`)
	dir := *pictures
	if dir == "" {
		dir = b.t.TempDir()
	}
	b.check(writePicture(fewColours(b.screen()), dir, name))
}

// fewColours is the picture with 256 colours, and the nearest of them for all others: a page has few, and its letters
// have shades that nobody misses. The most frequent ones are kept, but of every kind of colour one at least.
func fewColours(from image.Image) *image.Paletted {
	area := from.Bounds()
	often := map[color.Color]int{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			often[from.At(x, y)]++
		}
	}
	kinds := map[[3]uint32]color.Color{}
	for c, n := range often {
		if first := kinds[kind(c)]; first == nil || often[first] < n {
			kinds[kind(c)] = c
		}
	}
	only := map[color.Color]bool{}
	for _, c := range kinds {
		only[c] = true
	}
	colours := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int {
		if only[a] != only[b] && len(only) < 256 {
			return map[bool]int{true: -1, false: 1}[only[a]]
		}
		return often[b] - often[a]
	})
	palette := color.Palette(colours[:min(len(colours), 256)])
	index := map[color.Color]uint8{}
	for _, c := range colours {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(area, palette)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			to.SetColorIndex(x, y, index[from.At(x, y)])
		}
	}
	return to
}

// kind is a colour, roughly.
func kind(c color.Color) [3]uint32 {
	r, g, b, _ := c.RGBA()
	return [3]uint32{r >> 13, g >> 13, b >> 13}
}
