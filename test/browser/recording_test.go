//go:build browser && recording

package browser

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"image"
	"image/draw"
	"image/gif"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// The recording: its size and that of the line which says what is seen, as a page counts; how many points each of
// these has, for screens that show more of them; and how large the file may be.
const (
	recordWidth  = 880
	recordHeight = 500
	captionLine  = 44
	sharp        = 2
	maxRecording = 1 << 20
)

// TestRecording makes the recording at the top of the README: the tutorial's job hangs, alerts, loses its lock, and
// writes too late. All that it shows is real.
func TestRecording(t *testing.T) {
	r := newRecording(t)

	r.caption("Every lock that is held, on one page")
	monday := r.job("monday prices")
	monday.Prints(t, "locked, token")
	late := time.Now().Add(time.Minute)
	over := time.Now().Add(3 * time.Minute)
	r.page("", "nightly/report")
	r.keep(2500)

	r.caption("A nightly job has taken it")
	r.types("./report monday prices &")
	r.prints(monday.Output(), 1000)
	r.types("mutexctl list")
	r.prints(r.mutexctl("list"), 2000)

	r.caption("It hangs: the alert comes, and the next job waits")
	time.Sleep(time.Until(late) + time.Second)
	r.types("mutexctl list")
	r.prints(r.mutexctl("list"), 3000)
	r.types("./report tuesday today &")
	tuesday := r.job("tuesday today")
	r.keep(1000)

	r.caption("The page says who holds it, and who waits")
	r.page("lock?name=nightly/report", "the report of tuesday")
	r.keep(3500)
	r.caption("… and which line of code took it")
	r.scroll(".first")
	r.keep(3500)

	r.caption("Past its deadline, the lock goes to the next in line")
	r.lines = r.lines[len(r.lines)-1:] // the rest has scrolled away
	time.Sleep(time.Until(over))
	tuesday.Prints(t, "etcd took the report")
	r.prints(tuesday.Output(), 3000)

	r.caption("The hung job wakes up: its late write is refused")
	before := monday.Output()
	r.types("echo 17 > prices")
	r.check(os.WriteFile(filepath.Join(r.home, "prices"), []byte("17\n"), 0o600))
	monday.Prints(t, "was lost")
	r.prints(strings.TrimPrefix(monday.Output(), before), 6000)
	r.write(filepath.Join(cmp.Or(*pictures, t.TempDir()), "recording.gif"))
}

// recording is what is done and seen so far.
type recording struct {
	testing.TB
	home, bin string
	etcd, web string

	screen, browser *tab
	said            string   // the caption
	lines           []string // of the terminal
	frames          []image.Image
	delays          []int // hundredths of a second
}

// newRecording starts the bare mutexdev, and builds the tutorial's job.
func newRecording(t *testing.T) *recording {
	t.Helper()
	tools, err := proctest.Build("mutexdev", "mutexctl")
	proctest.Must(t, err)
	t.Cleanup(tools.Remove)
	r := &recording{TB: t, home: t.TempDir(), bin: tools.Dir, etcd: proctest.FreeAddr(t), web: proctest.FreeAddr(t)}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorial.md"))
	r.check(err)
	_, code, _ := strings.Cut(string(page), "```go\n")
	code, _, _ = strings.Cut(code, "```\n")
	source := filepath.Join(r.home, "report.go")
	r.check(os.WriteFile(source, []byte(code), 0o600))
	r.check(tools.Go("build", "-gcflags=-trimpath="+r.home+"=>/srv/jobs", // else the page shows a directory of tests
		"-o", filepath.Join(r.home, "report"), source))
	r.check(os.WriteFile(filepath.Join(r.home, "today"), []byte("42\n"), 0o600))
	r.check(exec.CommandContext(t.Context(), "mkfifo", filepath.Join(r.home, "prices")).Run())
	dev := proctest.Start(t, tools.Command(t, "mutexdev", "--no-demo", "--speed=10", "--etcd.listen-address="+r.etcd,
		"--unlocker.listen-address="+proctest.FreeAddr(t), "--web.listen-address="+r.web))
	dev.Prints(t, "  dashboard ")
	r.screen = newTab(t)
	r.screen.dense(recordWidth, recordHeight, sharp)
	r.screen.open("data:text/html," + url.PathEscape(stageOfARecording))
	r.browser = newTab(t)
	r.browser.dense(recordWidth, recordHeight-captionLine, sharp)
	r.browser.theme("light")
	return r
}

// stageOfARecording is the page on which captions and terminal are drawn.
const stageOfARecording = `<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #14181d; color: #d6dde6; overflow: hidden }
h1 { margin: 0; height: 44px; line-height: 44px; padding: 0 16px; font: 600 19px/44px sans-serif; color: #fff;
	background: #24476b; box-sizing: border-box }
pre { margin: 14px 16px; font: 14px/21px monospace; white-space: pre-wrap; overflow-wrap: anywhere }
b { color: #7fd1ff; font-weight: 400 }
i { color: #ffc24d; font-style: normal }
u { color: #ff7b72; text-decoration: none }
</style><h1></h1><pre></pre>`

func (r *recording) check(err error) {
	r.Helper()
	proctest.Must(r, err)
}

// command is a shell command where the recording is made.
func (r *recording) command(line string) *exec.Cmd {
	c := proctest.Command(r, "/bin/sh", "-c", line)
	c.Dir = r.home
	c.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+r.etcd, "PATH="+r.bin+":"+os.Getenv("PATH"), "COLUMNS=100",
		"TERM=xterm")
	return c
}

// job starts the job in the background.
func (r *recording) job(arguments string) *proctest.Process {
	return proctest.Start(r, r.command("exec ./report "+arguments))
}

// mutexctl is what mutexctl prints on a terminal.
func (r *recording) mutexctl(arguments string) string {
	out, err := r.command(`script -qec "mutexctl ` + arguments + `" /dev/null`).CombinedOutput()
	r.check(err)
	return strings.ReplaceAll(string(out), "\r", "")
}

func (r *recording) caption(words string) { r.said = words }

// types shows a command as it is typed.
func (r *recording) types(command string) {
	r.lines = append(r.lines, "")
	for n := 0; n < len(command); n += 4 {
		r.lines[len(r.lines)-1] = "<b>$ " + html.EscapeString(command[:min(n+4, len(command))]) + "</b>"
		r.draw(70)
	}
	r.keep(400)
}

var colours = regexp.MustCompile("\x1b\\[(3[13]|0)m")

// prints shows what a command has printed, for so many milliseconds.
func (r *recording) prints(text string, milliseconds int) {
	text = colours.ReplaceAllStringFunc(html.EscapeString(text), func(s string) string {
		return map[string]string{"\x1b[31m": "<u>", "\x1b[33m": "<i>", "\x1b[0m": "</i></u>"}[s]
	})
	r.lines = append(r.lines, strings.TrimRight(text, "\n"))
	r.draw(milliseconds)
}

// draw takes a picture of the terminal.
func (r *recording) draw(milliseconds int) {
	r.stage(strings.Join(r.lines, "\n"))
	r.frames = append(r.frames, r.screen.screen())
	r.delays = append(r.delays, milliseconds/10)
}

// stage draws caption and terminal.
func (r *recording) stage(lines string) {
	said, err := json.Marshal([]string{html.EscapeString(r.said), lines})
	r.check(err)
	ask[bool](r.screen, `(([said, lines]) => {
		document.querySelector("h1").innerHTML = said;
		document.querySelector("pre").innerHTML = lines;
		return true;
	})(`+string(said)+`)`)
}

// keep shows the last picture for longer.
func (r *recording) keep(milliseconds int) { r.delays[len(r.delays)-1] += milliseconds / 10 }

// page takes a picture of a page of the dashboard that says these words.
func (r *recording) page(path, words string) {
	r.browser.open("http://" + r.web + "/" + path)
	r.browser.says(words)
	r.look()
}

// scroll takes a picture of the same page with an element in the middle.
func (r *recording) scroll(selector string) {
	ask[bool](r.browser, fmt.Sprintf(`(document.querySelector(%q).scrollIntoView({ block: "center" }), true)`,
		selector))
	r.look()
}

// look takes a picture of the page below the caption.
func (r *recording) look() {
	r.stage("")
	frame := image.NewRGBA(image.Rect(0, 0, recordWidth*sharp, recordHeight*sharp))
	draw.Draw(frame, frame.Bounds(), r.screen.screen(), image.Point{}, draw.Src)
	below := frame.Bounds()
	below.Min.Y = captionLine * sharp
	draw.Draw(frame, below, r.browser.screen(), image.Point{}, draw.Src)
	r.frames = append(r.frames, frame)
	r.delays = append(r.delays, 0)
}

// write writes the recording, each picture as what is new in it.
func (r *recording) write(file string) {
	one := r.frames[0].Bounds()
	at := func(i int) image.Rectangle { return one.Add(image.Pt(0, i*one.Dy())) }
	all := image.NewRGBA(one.Union(at(len(r.frames) - 1)))
	for i, frame := range r.frames {
		draw.Draw(all, at(i), frame, image.Point{}, draw.Src)
	}
	strip := fewColours(all) // one palette for all
	movie := &gif.GIF{Delay: r.delays,
		Config: image.Config{ColorModel: strip.Palette, Width: one.Dx(), Height: one.Dy()}}
	total := 0
	for i, delay := range r.delays {
		now := at(i)
		if i > 0 {
			now = changed(strip, now)
		}
		part := image.NewPaletted(now.Sub(at(i).Min), strip.Palette)
		for y := range now.Dy() {
			copy(part.Pix[y*part.Stride:], strip.Pix[strip.PixOffset(now.Min.X, now.Min.Y+y):][:now.Dx()])
		}
		movie.Image = append(movie.Image, part)
		total += delay
	}
	out, err := os.Create(file)
	r.check(err)
	r.check(gif.EncodeAll(out, movie))
	size, err := out.Seek(0, 1)
	r.check(err)
	r.check(out.Close())
	r.Logf("%d pictures, %.1f s, %d bytes", len(r.frames), float64(total)/100, size)
	if size > maxRecording || total > 3000 {
		r.Errorf("the recording has %d bytes and takes %d hundredths of a second, want at most %d and 3000", size,
			total, maxRecording)
	}
}

// changed is the rows in which a picture in a strip differs from the one above it; one row where none does.
func changed(strip *image.Paletted, now image.Rectangle) image.Rectangle {
	above := now.Dy()
	row := func(y int) []uint8 { return strip.Pix[y*strip.Stride:][:strip.Stride] }
	same := func(y int) bool { return bytes.Equal(row(y), row(y-above)) }
	for now.Dy() > 1 && same(now.Min.Y) {
		now.Min.Y++
	}
	for now.Dy() > 1 && same(now.Max.Y-1) {
		now.Max.Y--
	}
	return now
}
