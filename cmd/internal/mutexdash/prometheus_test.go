package mutexdash_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// waited is what a Prometheus answers that is asked for a time one minute before the last slot.
const waited = `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},` +
	`"values":[[%d.5,"NaN"],[%d,"4.5"],[%[2]d.000,"-1"]]}]}}`

func TestPrometheusIsAskedWhoWaited(t *testing.T) {
	t.Parallel()
	const name = `a"} or \up{`
	var answer, asked atomic.Value
	answer.Store(waited)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, err := strconv.ParseInt(r.PostFormValue("end"), 10, 64)
		start, _ := strconv.ParseInt(r.PostFormValue("start"), 10, 64)
		asked.Store(fmt.Sprint(r.URL.Path, " ", end-start, "s by ", r.PostForm.Get("step"), " ",
			r.PostForm.Get("query"),
			" ", err))
		text := answer.Load().(string)
		if text == waited {
			text = fmt.Sprintf(waited, end, end-60)
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	etcd := etcdtest.Start(t)
	take(t, etcd.Client(t), name)
	page := func(says string) {
		t.Helper()
		p := start(t, etcd.Endpoint(), "--prometheus.url="+server.URL+"/prom/", `--prometheus.match=job="u"`)
		answers(t, p.pages+"/lock?name="+strings.ReplaceAll(strings.ReplaceAll(name, " ", "%20"), "\\", "%5C"),
			http.StatusOK, says)
	}
	page("at most 4 waited at a time, says Prometheus")
	want := `/prom/api/v1/query_range 86100s by 300 max(max_over_time(unlocker_lock_waiters{` +
		`lock="a\"} or \\up{",job="u"}[300s])) <nil>`
	if got := asked.Load(); got != want {
		t.Errorf("asked %v, want %s", got, want)
	}
	for text, says := range map[string]string{
		`{"status":"success","data":{"result":[]}}`: "Prometheus has no samples of this lock",
		`{"status":"error","error":"secret"}`:       "(it did not answer the question)",
		`<html>`:                                    "(it did not answer the question)",
		`{"status":"success","data":{"result":[{"values":[["x","3"]]}]}}`: "(it did not answer the question)",
		`{"status":"success","data":{"result":[{"values":[[1,"x"]]}]}}`:   "(it did not answer the question)",
		`{"status":"success","x":"` + strings.Repeat("x", 1<<20) + `"}`:   "(it did not answer the question)",
	} {
		answer.Store(text)
		page(says)
	}
	server.Close()
	page("(it did not answer the question)")
}
