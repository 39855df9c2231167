package mutexdash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/internal/text"
)

// prometheusOptions holds the flags about a Prometheus that remembers more than the dashboard.
type prometheusOptions struct {
	url, match, configFile string
}

func (o *prometheusOptions) define(fs *pflag.FlagSet) {
	fs.StringVar(&o.url, "prometheus.url", "",
		"`URL` of a Prometheus that scrapes the unlockers, to show waits from before the dashboard started on a "+
			"lock's page")
	fs.StringVar(&o.match, "prometheus.match", "",
		"`matchers` that distinguish these unlockers from others in that Prometheus, such as 'cluster=\"eu\"'")
	fs.StringVar(&o.configFile, "prometheus.config.file", "",
		"`file` with user, token and TLS settings for it, in the format of Prometheus' http_config")
}

// waited returns what asks Prometheus; nil if none is configured.
func (o prometheusOptions) waited() (func(context.Context, string, time.Time, time.Time) ([]trends.Sample, error),
	error) {
	if o.url == "" {
		if o.match != "" || o.configFile != "" {
			return nil, errors.New("--prometheus.match and --prometheus.config.file are for --prometheus.url, " +
				"which is missing")
		}
		return nil, nil
	}
	if _, err := daemon.ParseURL("--prometheus.url", o.url); err != nil {
		return nil, err
	}
	matcher := `\s*(\w+|"(\\.|[^"\\])*")\s*(=|!=|=~|!~)\s*("(\\.|[^"\\])*"|'(\\.|[^'\\])*'|` + "`[^`]*`)\\s*"
	if !regexp.MustCompile("^(" + matcher + "(," + matcher + ")*,?\\s*)?$").MatchString(o.match) {
		return nil, fmt.Errorf("--prometheus.match %q is not of the form cluster=\"eu\",job=\"unlocker\"", o.match)
	}
	client, err := wiring.HTTPClient("prometheus", o.configFile)
	if err != nil {
		return nil, err
	}
	return o.ask(client), nil
}

// ask returns a function that queries how many waiters of a lock the unlockers counted.
func (o prometheusOptions) ask(client *http.Client) func(context.Context, string, time.Time, time.Time) (
	[]trends.Sample, error) {
	return func(ctx context.Context, lock string, from, to time.Time) ([]trends.Sample, error) {
		matchers := fmt.Sprintf("lock=%q", text.NameLabel(lock))
		if o.match != "" {
			matchers += "," + o.match
		}
		query := fmt.Sprintf("max(max_over_time(unlocker_lock_waiters{%s}[%ds]))", matchers, int(trends.Slot.Seconds()))
		// A sample at the end of a slot is about the slot.
		found, err := o.queryRange(ctx, client, query, from.Add(trends.Slot), to.Add(trends.Slot))
		if err != nil {
			return nil, short(err)
		}
		return samples(found), nil
	}
}

// maxAnswer bounds what is read of an answer: 24 hours in steps of five minutes are 10 kB.
const maxAnswer = 1 << 20

// queryRange evaluates the query at the end of every slot.
func (o prometheusOptions) queryRange(ctx context.Context, client *http.Client, query string, from, to time.Time) (
	model.Matrix, error) {
	seconds := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	form := url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(to)},
		"step": {strconv.Itoa(int(trends.Slot.Seconds()))}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(o.url, "/")+"/api/v1/query_range", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status string
		Data   struct{ Result model.Matrix }
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer)
	if err == nil && answer.Status != "success" {
		err = errors.New("no success")
	}
	return answer.Data.Result, err
}

// samples is the first series of an answer. No series is no sample.
func samples(series model.Matrix) []trends.Sample {
	if len(series) == 0 {
		return nil
	}
	all := make([]trends.Sample, 0, len(series[0].Values))
	for _, s := range series[0].Values {
		if value := float64(s.Value); value >= 0 { // not a number is no sample
			n := int(min(value, math.MaxInt32))
			all = append(all, trends.Sample{At: s.Timestamp.Time().UTC().Add(-trends.Slot), N: n})
		}
	}
	return all
}

// short is what a viewer may know of an error: no address.
func short(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("timeout")
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("it does not speak TLS")
	}
	return errors.New("it did not answer the question")
}
