// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// chunk is what a stream's ends hand to the kernel at a time.
const chunk = 64 << 10

// withoutEnd is the length of a stream that goes on until it is closed.
const withoutEnd = 0

// stream is the content of every stream: as good as random, and the same each
// time, so that a byte lost, doubled, moved or changed is found where it is.
type stream struct{ source *rand.ChaCha8 }

func newStream() stream { return stream{rand.NewChaCha8([32]byte{'w', 'i', 'r', 'e'})} }

func (s stream) Read(b []byte) (int, error) { return s.source.Read(b) }

// verify reads n bytes of a stream, or, without end, until there are no more.
func verify(r io.Reader, n int64) (int64, error) {
	want, got, content := make([]byte, chunk), make([]byte, chunk), newStream()
	done := int64(0)
	for n == withoutEnd || done < n {
		size := int64(chunk)
		if n != withoutEnd {
			size = min(size, n-done)
		}
		read, err := io.ReadFull(r, got[:size])
		content.Read(want[:size])
		if !bytes.Equal(got[:read], want[:read]) {
			return done, fmt.Errorf("other content than was sent, within %d bytes after the first %d", size, done)
		}
		done += int64(read)
		if err != nil {
			return done, fmt.Errorf("after %d bytes: %w", done, err)
		}
	}
	return done, nil
}

// serveStreams takes connections in the namespace. Each begins with two
// numbers, of the bytes that the client sends, and of those that it wants.
func serveStreams(t *testing.T, ns *lab.NetNS, addrs rig.Pair, port uint16) {
	t.Helper()
	for _, addr := range addrs.List() {
		var listener net.Listener
		ns.Do(func() {
			var err error
			if listener, err = net.Listen("tcp", netip.AddrPortFrom(addr, port).String()); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go serveStream(conn)
			}
		}()
	}
}

// serveStream closes the connection early if something is wrong; the client
// will miss what it wanted.
func serveStream(conn net.Conn) {
	defer conn.Close()
	var sizes [2]int64
	if err := binary.Read(conn, binary.BigEndian, &sizes); err != nil {
		return
	}
	if sizes[0] > 0 {
		if _, err := verify(conn, sizes[0]); err != nil {
			return
		}
	}
	if sizes[1] != withoutEnd {
		io.CopyN(conn, newStream(), sizes[1])
		return
	}
	pour(conn)
}

// pour sends without end, slowly enough to leave others some of the machine.
func pour(conn net.Conn) {
	content, b := newStream(), make([]byte, chunk)
	for {
		content.Read(b)
		if _, err := conn.Write(b); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dial connects from a namespace.
func dial(ns *lab.NetNS, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	var err error
	ns.Do(func() { conn, err = net.DialTimeout("tcp", to.String(), rig.Patience) })
	return conn, err
}

// exchange sends so many bytes through a new connection, and then gets others.
func exchange(ns *lab.NetNS, to netip.AddrPort, up, down int64) error {
	conn, err := dial(ns, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if err := binary.Write(conn, binary.BigEndian, [2]int64{up, down}); err != nil {
		return err
	}
	if _, err := io.CopyN(conn, newStream(), up); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if _, err := verify(conn, down); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

// download is a connection through which a stream comes until it is ended.
type download struct {
	to     netip.AddrPort
	conn   net.Conn
	result chan error
	length chan int64
}

// startDownload starts one, and waits until something came.
func startDownload(t *testing.T, ns *lab.NetNS, to netip.AddrPort) *download {
	t.Helper()
	conn, err := dial(ns, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := binary.Write(conn, binary.BigEndian, [2]int64{0, withoutEnd}); err != nil {
		t.Fatal(err)
	}
	d := &download{to: to, conn: conn, result: make(chan error, 1), length: make(chan int64, 1)}
	go func() {
		n, err := verify(stalls{conn}, withoutEnd)
		d.length <- n
		d.result <- err
	}()
	return d
}

// stalls makes a pause of seconds an error.
type stalls struct{ net.Conn }

func (s stalls) Read(b []byte) (int, error) {
	s.SetReadDeadline(time.Now().Add(5 * time.Second))
	return s.Conn.Read(b)
}

// broken is why the download does not go on, or nil.
func (d *download) broken() error {
	select {
	case err := <-d.result:
		d.result <- err
		return err
	default:
		return nil
	}
}

// end ends the download, in which nothing may have been lost until then, and
// which went on until now.
func (d *download) end(t *testing.T) {
	t.Helper()
	if err := d.broken(); err != nil {
		t.Errorf("the download from %s broke off: %v", d.to, err)
		return
	}
	d.conn.Close()
	if n, err := <-d.length, <-d.result; !errors.Is(err, net.ErrClosed) || n < chunk {
		t.Errorf("the download from %s: %d bytes, %v", d.to, n, err)
	}
}
