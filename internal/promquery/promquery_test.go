package promquery_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/promquery"
)

func TestRange(t *testing.T) {
	var asked string
	answer := `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1700000000,"3"],` +
		`[1700000300.5,"4.5"]]}]}}`
	status := 200
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.URL.Path + "?" + string(body)
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer server.Close()
	c := promquery.Client{URL: server.URL + "/prom/", HTTP: server.Client()}
	ask := func() ([]promquery.Sample, error) {
		return c.Range(t.Context(), `m{a="b&c"}`, time.Unix(100, 0), time.Unix(400, 0), 5*time.Minute)
	}
	got, err := ask()
	if err != nil || len(got) != 2 || got[0] != (promquery.Sample{At: time.Unix(1_700_000_000, 0).UTC(), Value: 3}) ||
		got[1].Value != 4.5 {
		t.Errorf("%v, %v", got, err)
	}
	if want := "/prom/api/v1/query_range?end=400&query=m%7Ba%3D%22b%26c%22%7D&start=100&step=300"; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	answer = `{"status":"success","data":{"result":[]}}`
	if got, err := ask(); len(got) != 0 || err != nil {
		t.Errorf("no series: %v, %v", got, err)
	}
	for _, bad := range []string{`{"status":"error","error":"secret"}`, `<html>`, "",
		`{"status":"success","data":{"result":[{"values":[["x","3"]]}]}}`,
		`{"status":"success","data":{"result":[{"values":[[1,"x"]]}]}}`} {
		answer = bad
		if got, err := ask(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
	server.Close()
	if got, err := ask(); err == nil || strings.Contains(err.Error(), "/prom/") {
		t.Errorf("nobody there: %v, %v", got, err)
	}
}

func TestMatcher(t *testing.T) {
	if got := promquery.Matcher("lock", "a\"} or \\up\n{"); got != `lock="a\"} or \\up\n{"` {
		t.Error(got)
	}
}
