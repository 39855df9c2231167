package servers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// zookeeperJar is where the Debian package keeps the server; its manifest names what else it needs.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeper runs one ZooKeeper server, which flushes its log before it answers, as is its default.
func ZooKeeper(ctx context.Context, dir string) (*Process, error) {
	program, err := need("java", "default-jre-headless")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(zookeeperJar); err != nil {
		return nil, fmt.Errorf("ZooKeeper is missing (%w): it is in the Debian package zookeeper", err)
	}
	dir, err = makeDir(dir, "zookeeper")
	if err != nil {
		return nil, err
	}
	addr, err := proctest.FindAddr()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "zoo.cfg")
	lines := []string{
		"dataDir=" + filepath.Join(dir, "data"), "clientPort=" + port(addr), "clientPortAddress=127.0.0.1",
		"tickTime=2000", "maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=srvr",
	}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-Xmx1g", "-cp", zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
		config)
	return start(ctx, "zookeeper", addr, dir, cmd, func(context.Context) error {
		_, _, err := ZooKeeperCounts(addr)
		return err
	})
}

// ZooKeeperCounts returns how many packets the server received, including pings, and how many transactions it logged.
func ZooKeeperCounts(addr string) (received, logged float64, err error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, 0, err
	}
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return 0, 0, err
	}
	return readCounts(c)
}

// readCounts reads an answer to srvr.
func readCounts(r io.Reader) (received, logged float64, err error) {
	found := 0
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "Received":
			if received, err = strconv.ParseFloat(value, 64); err != nil {
				return 0, 0, err
			}
			found++
		case "Zxid":
			zxid, err := strconv.ParseUint(value, 0, 64)
			if err != nil {
				return 0, 0, err
			}
			logged = float64(zxid & 0xffffffff) // the upper half counts leaders
			found++
		}
	}
	if found != 2 {
		return 0, 0, fmt.Errorf("ZooKeeper's answer to srvr names %d of 2 counts", found)
	}
	return received, logged, nil
}
