package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A timeline of 100 minutes: one minute is one percent.
var begin = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func minute(n float64) time.Time { return begin.Add(time.Duration(n * float64(time.Minute))) }

func plan(bars int) timeline.Options {
	return timeline.Options{Span: timeline.Span{From: begin, To: minute(100)}, Lanes: 50, Bars: bars,
		Order:   timeline.ByTimeWaited,
		Lane:    func(i *timeline.Interval) string { return i.Lock },
		AsOf:    minute(100),
		Unknown: []timeline.Span{{To: minute(-5)}, {minute(30), minute(40)}}}
}

// parse reads "lock owner from-to", with "w" for a wait, "!" for a forced end and "@n" for an alert.
func parse(lines string) (all []timeline.Interval) {
	for n, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		words := strings.Fields(line)
		i := timeline.Interval{Lock: words[0], Name: words[0], Owner: words[1], Token: int64(n + 1), ID: fmt.Sprint(n)}
		var from, to, alert float64
		if _, err := fmt.Sscanf(words[2], "%g-%g", &from, &to); err == nil {
			i.End = minute(to)
		}
		i.Begin = minute(from)
		for _, word := range words[3:] {
			switch {
			case word == "w":
				i.Wait = true
			case word == "!":
				i.Ended = metadata.EndingForced
			case word == "dead":
				i.Dead = true
			default:
				if _, err := fmt.Sscanf(word, "@%g", &alert); err == nil {
					i.Alert = minute(alert)
				}
			}
		}
		all = append(all, i)
	}
	return all
}

// show formats lanes: rows of bars as owner[x+width], * for the number, ~ for the part past the alert, + for those
// without a row.
func show(p timeline.Chart) string {
	var b strings.Builder
	row := func(bars []timeline.Bar) {
		for _, bar := range bars {
			fmt.Fprintf(&b, " %s[%.4g+%.4g]", bar.Owner, bar.X, bar.Width)
			if bar.N > 1 {
				fmt.Fprintf(&b, "*%d", bar.N)
			}
			if bar.Late.Width > 0 {
				fmt.Fprintf(&b, "~%.4g+%.4g", bar.Late.X, bar.Late.Width)
			}
			b.WriteString(strings.TrimPrefix(" "+bar.Ended, " "))
		}
	}
	for _, l := range p.Lanes {
		fmt.Fprintf(&b, "%s", l.Name)
		for _, bars := range l.HoldRows {
			b.WriteString(" |")
			row(bars)
		}
		for _, bars := range l.WaitRows {
			b.WriteString(" -")
			row(bars)
		}
		if l.Undrawn > 0 {
			fmt.Fprintf(&b, " + %d", l.Undrawn)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Unknown spans count neither as late nor as waits.
func TestOpenIntervalsCountUntilEtcdWasLastHeard(t *testing.T) {
	p := plan(100)
	p.AsOf = minute(80)
	got := timeline.NewChart(parse("a x 0- @90\na y 60- w\na z 70- @75"), p)
	want := "a | x[0+80] | z[70+10]~75+5 - y[60+20]\n"
	l := got.Lanes[0]
	if show(got) != want || l.TimeWaited != 20*time.Minute || l.Wrong != 1 {
		t.Errorf("waited %v, %d wrong:\n%swant\n%s", l.TimeWaited, l.Wrong, show(got), want)
	}
}

func TestLayout(t *testing.T) {
	for name, test := range map[string]struct{ history, want string }{
		"out of the picture": {"a x -20--1", ""},
		"of no length":       {"a x 50-50", "a | x[50+0]\n"},
		"cut at both edges":  {"a x -20-", "a | x[0+100]\n"},
		"one after the other": {"a x 10-20\na y 20-40 !\na z 50-",
			"a | x[10+10] y[20+20]forced z[50+50]\n"},
		"past its alert": {"a x 10-20 @5\na x 20-28 @25\na y 30-40 @45\na z 50- @90",
			"a | x[10+10]~10+10 x[20+8]~25+3 y[30+10] z[50+50]~90+10\n"},
		"most waited first": {"a x 0-90\nb x 0-10\nb y 5-10 w", "b | x[0+10] - y[5+5]\na | x[0+90]\n"},
		"then what was bad": {"a x 0-90\nb x 0-10 !", "b | x[0+10]forced\na | x[0+90]\n"},
		"waits in lines": {"a x 0-50\na y 10-30 w\na z 20-40 w\na v 30-35 w",
			"a | x[0+50] - y[10+20] v[30+5] - z[20+20]\n"},
		"short ones": {"a x 1-1.1\na x 1.2-1.3\na y 1.4-1.5\na y 3-3.1",
			"a | x[1+0.5]*3 y[3+0.1]\n"},
		"short ones with trouble": {"a x 1-1.1\na x 1.2-1.3 !\na x 1.4-1.5",
			"a | x[1+0.1] x[1.2+0.1]forced x[1.4+0.1]\n"},
		"its holder is dead": {"a x 0- dead", "a | x[0+100]abandoned\n"},
		"several hold it": {"a x 0-50\na y 10-60\na z 20-70\na u 30-80\na v 40-90\na w 45-46",
			"a | x[0+50] | y[10+50] | z[20+50] | u[30+50] + 2\n"},
	} {
		if got := show(timeline.NewChart(parse(test.history), plan(1000))); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
}

// TestRandomHistoryIsDrawnCompletely checks invariants of every timeline: bars are within the edges and do not overlap
// in a row, each interval is in exactly one, and there are no more than requested.
func TestRandomHistoryIsDrawnCompletely(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		var all []timeline.Interval
		scale := []float64{.05, 1, 30}[random.IntN(3)]
		for n := range 1 + random.IntN(400) {
			i := timeline.Interval{Lock: fmt.Sprint(random.IntN(6)), Owner: fmt.Sprint(random.IntN(3)),
				Token: int64(n), Wait: random.IntN(2) == 0, Begin: minute(110*random.Float64() - 5)}
			if random.IntN(9) > 0 {
				i.End = i.Begin.Add(time.Duration(scale * random.Float64() * float64(time.Minute)))
			}
			if i.Alert = i.Begin.Add(time.Minute); random.IntN(5) == 0 {
				i.Ended = metadata.EndingAutoUnlocked
			}
			all = append(all, i)
		}
		p := plan(10 + random.IntN(300))
		picture := timeline.NewChart(all, p)
		for _, l := range picture.Lanes {
			n := 0
			for _, row := range slices.Concat(l.HoldRows, l.WaitRows) {
				edge := 0.
				for _, bar := range row {
					if bar.X < edge-1e-9 || bar.Width < 0 || bar.X+bar.Width > 100+1e-9 {
						t.Fatalf("seed %d, lane %s: %+v after %v", seed, l.Name, bar.PercentRange, edge)
					}
					if late := bar.Late; late.Width > 0 &&
						(late.X < bar.X-1e-9 || late.X+late.Width > bar.X+bar.Width+1e-9) {
						t.Fatalf("seed %d, lane %s: %+v is late in %+v", seed, l.Name, bar.PercentRange, late)
					}
					edge = bar.X + bar.Width
					n += bar.N
				}
			}
			if n+l.Undrawn != len(l.All) {
				t.Errorf("seed %d, lane %s: %d of %d are drawn", seed, l.Name, n, len(l.All))
			}
		}
		if len(picture.Unknown) != 1 || picture.Unknown[0] != (timeline.PercentRange{X: 30, Width: 10}) {
			t.Fatalf("%+v", picture.Unknown)
		}
		if least := 6 * 11; picture.Bars > max(least, p.Bars) {
			t.Errorf("seed %d: %d bars, at most %d were asked for", seed, picture.Bars, p.Bars)
		}
	}
}
