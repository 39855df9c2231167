package servers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// EtcdCounts are counts of an etcd member since its start, from its own metrics.
type EtcdCounts struct {
	Requests float64 // unary requests of clients
	Watches  float64 // messages of clients on watch streams
	Told     float64 // messages to clients on watch streams
	Commits  float64 // entries of the replicated log
}

// ReadEtcd reads the counts of a member.
func ReadEtcd(ctx context.Context, addr string) (EtcdCounts, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return EtcdCounts{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return EtcdCounts{}, err
	}
	defer resp.Body.Close()
	return etcdCounts(resp.Body)
}

func etcdCounts(metrics io.Reader) (c EtcdCounts, err error) {
	found := false
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		var sum *float64
		switch {
		case series == "etcd_server_proposals_committed_total":
			sum = &c.Commits
			found = true
		case strings.HasPrefix(series, "grpc_server_started_total{") && strings.Contains(series, `grpc_type="unary"`):
			sum = &c.Requests
		case strings.HasPrefix(series, "grpc_server_msg_received_total{") &&
			strings.Contains(series, `grpc_method="Watch"`):
			sum = &c.Watches
		case strings.HasPrefix(series, "grpc_server_msg_sent_total{") &&
			strings.Contains(series, `grpc_method="Watch"`):
			sum = &c.Told
		default:
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, fmt.Errorf("metric %s: %w", series, err)
		}
		*sum += x
	}
	if err := lines.Err(); err != nil {
		return c, err
	}
	if !found {
		return c, fmt.Errorf("etcd's metrics do not include commits")
	}
	return c, nil
}
