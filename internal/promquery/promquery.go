// Package promquery asks a Prometheus for the past of a metric.
package promquery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds what is read of an answer: 24 hours in steps of five minutes are 10 kB.
const maxAnswer = 1 << 20

// Client asks one Prometheus, or what speaks its API.
type Client struct {
	URL  string // before /api/v1
	HTTP *http.Client
}

// Sample is a value at a time.
type Sample struct {
	At    time.Time
	Value float64
}

// Range evaluates the query at every step from one time to another. Of an answer with several series it returns the
// first. No series is no sample.
func (c *Client) Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]Sample, error) {
	form := url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(to)},
		"step": {strconv.Itoa(int(step.Seconds()))}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(c.URL, "/")+"/api/v1/query_range", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.HTTP.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) { // whose text has the address
			err = wrapped.Err
		}
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status string
		Data   struct {
			Result []struct{ Values [][2]json.RawMessage }
		}
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil ||
		answer.Status != "success" {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	if len(answer.Data.Result) == 0 {
		return nil, nil
	}
	var samples []Sample
	for _, pair := range answer.Data.Result[0].Values {
		var at float64
		var text string
		if json.Unmarshal(pair[0], &at) != nil || json.Unmarshal(pair[1], &text) != nil {
			return nil, errors.New("unreadable samples")
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errors.New("unreadable samples")
		}
		samples = append(samples, Sample{time.UnixMilli(int64(at * 1000)).UTC(), value})
	}
	return samples, nil
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// Matcher is name="value" for a query, whatever the value is.
func Matcher(name, value string) string {
	return name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value) + `"`
}
