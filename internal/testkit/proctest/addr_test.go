package proctest

import (
	"net"
	"testing"
)

func TestAddressIsReservedUntilItsTestEnds(t *testing.T) {
	var addr string
	t.Run("in another test", func(t *testing.T) {
		addr = FreeAddr(t)
		if c, err := net.ListenPacket("udp", addr); err == nil {
			c.Close()
			t.Errorf("%s is not reserved", addr)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatalf("%s is still reserved: %v", addr, err)
	}
	c.Close()
}
