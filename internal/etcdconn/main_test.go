package etcdconn_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }
