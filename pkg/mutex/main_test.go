package mutex_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }
