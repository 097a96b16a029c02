package store

import (
	"crypto/tls"
	"net"
	"testing"
)

func TestAnEncryptedConnectionIsAttentiveBelow(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	c := &attentiveConn{Conn: near}
	if attentive(c) != c || attentive(tls.Client(c, &tls.Config{})) != c || attentive(near) != nil {
		t.Error("not found")
	}
}
