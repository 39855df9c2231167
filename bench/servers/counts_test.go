package servers

import (
	"strings"
	"testing"
)

func TestEtcdsMetricsAreSummedByKind(t *testing.T) {
	got, err := etcdCounts(strings.NewReader(`
# HELP grpc_server_started_total Total number of RPCs started on the server.
grpc_server_started_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 40
grpc_server_started_total{grpc_method="LeaseGrant",grpc_service="etcdserverpb.Lease",grpc_type="unary"} 2
grpc_server_started_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 1
grpc_server_msg_sent_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 9
grpc_server_msg_received_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 7
grpc_server_msg_received_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 40
etcd_server_proposals_committed_total 1.5e+06
`))
	if want := (EtcdCounts{Requests: 42, Watches: 7, Told: 9, Commits: 1.5e6}); err != nil || got != want {
		t.Errorf("counts = %+v, %v, want %+v", got, err, want)
	}
}

func TestZooKeepersAnswerIsParsed(t *testing.T) {
	received, logged, err := readCounts(strings.NewReader("Zookeeper version: 3.8.0\n" +
		"Received: 12345\nSent: 12344\nZxid: 0x20000000a\nMode: standalone\n"))
	if err != nil || received != 12345 || logged != 10 {
		t.Errorf("counts = %v, %v, %v, want 12345, 10", received, logged, err)
	}
	refusal := strings.NewReader("This ZooKeeper instance is not currently serving requests\n")
	if _, _, err := readCounts(refusal); err == nil {
		t.Error("no error of a server that is not ready")
	}
}
