// Package machine describes the machine of a benchmark, for later readers of its figures.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/clustermutex/unlocker/bench/stats"
)

// Describe returns some lines of Markdown about time and machine: processors, the file system of dir and how long it
// takes to flush, versions, and load.
func Describe(dir string) (string, error) {
	flush, err := flushTime(dir)
	if err != nil {
		return "", err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "- %s; load average %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), load())
	fmt.Fprintf(&b, "- %d × %s, %s, %s\n", runtime.NumCPU(), processor(), kernel(), runtime.Version())
	kind := fileSystem(int64(fs.Type)) //nolint:unconvert // it has 32 bits on some architectures
	fmt.Fprintf(&b, "- data on %s, where flushing 4 KiB takes %.2f ms (median)\n", kind, flush.Seconds()*1000)
	fmt.Fprintf(&b, "- %s\n", strings.Join(versions(), ", "))
	return b.String(), nil
}

// flushTime is the median time to write and flush 4 KiB.
func flushTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "flush"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 100 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return stats.Percentile(took, 50), nil
}

// fileSystem names the usual file systems. Readers must know about those in memory, where flushing does nothing.
func fileSystem(magic int64) string {
	switch magic {
	case 0x01021994:
		return "tmpfs (memory)"
	case 0xEF53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683E:
		return "btrfs"
	case 0x794C7630:
		return "overlayfs"
	}
	return fmt.Sprintf("a file system of kind %#x", magic)
}

func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(release))
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// versions returns the versions of the compared modules.
func versions() (all []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "go.etcd.io/etcd/server/v3", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
			"github.com/go-zookeeper/zk":
			all = append(all, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
		}
	}
	return all
}
