// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shortened bounds what is kept of an answer.
const shortened = 200

// badAnswer is an answer that is not what was asked for.
type badAnswer string

func (b badAnswer) Error() string { return string(b) }

// ask sends over a connection what its purpose asks, and returns what came
// back.
func ask(ctx context.Context, conn net.Conn, t Target) (string, error) {
	switch t.Purpose {
	case APIService, APIDirect:
		return askReady(ctx, conn, t)
	case DNSService, DNSDirect, DNSLocal:
		return askName(conn, t.Name)
	}
	return "connected", nil
}

// askReady asks an API server whether it is ready. Whoever answers is not
// believed anything, and gets nothing to know: its certificate only helps to
// see who it is.
func askReady(ctx context.Context, conn net.Conn, t Target) (string, error) {
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := secure.HandshakeContext(ctx); err != nil {
		var header tls.RecordHeaderError
		if errors.As(err, &header) {
			return "", badAnswer("what came back is no TLS")
		}
		return "", fmt.Errorf("TLS: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.Address.String()+"/readyz", nil)
	if err != nil {
		return "", fmt.Errorf("make a request: %w", err)
	}
	request.Close = true
	if err := request.Write(secure); err != nil {
		return "", fmt.Errorf("GET /readyz: %w", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(secure, 64<<10)), request)
	if err != nil {
		if !netError(err) {
			return "", badAnswer("what came back is no HTTP: " + err.Error())
		}
		return "", fmt.Errorf("GET /readyz: %w", err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, shortened)) // the status is the answer
	return cut(fmt.Sprintf("HTTP %d %q, certificate %s", response.StatusCode, body, certificate(secure))), nil
}

// netError says that an error is the connection's, not that of its content.
func netError(err error) bool {
	var n net.Error
	var errno syscall.Errno
	return errors.As(err, &n) || errors.As(err, &errno) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

func certificate(c *tls.Conn) string {
	peers := c.ConnectionState().PeerCertificates
	if len(peers) == 0 {
		return "none"
	}
	return fmt.Sprintf("%q", peers[0].Subject.CommonName)
}

// askName asks a DNS server for the address of a name, more than once, since
// datagrams get lost.
func askName(conn net.Conn, name string) (string, error) {
	const pause = 600 * time.Millisecond
	query := question(uint16(rand.Uint32()), name)
	deadline := time.Now().Add(dialTime)
	buffer := make([]byte, 1500)
	for {
		if _, err := conn.Write(query); err != nil {
			return "", &sendError{err}
		}
		until := time.Now().Add(pause)
		if until.After(deadline) {
			until = deadline
		}
		if err := conn.SetReadDeadline(until); err != nil {
			return "", fmt.Errorf("bound the wait for an answer: %w", err)
		}
		n, err := conn.Read(buffer)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			if until.Before(deadline) {
				continue
			}
			return "", &refusal{step: StepHandshake}
		}
		if err != nil {
			return "", withNotice(conn, err)
		}
		return readName(buffer[:n], query)
	}
}

// sendError is what the call that sends says.
type sendError struct{ error }

func (e *sendError) Unwrap() error { return e.error }

// withNotice finds who sent the ICMP error that a socket reports.
func withNotice(conn net.Conn, err error) error {
	var errno unix.Errno
	raw, ok := conn.(syscall.Conn)
	if !ok || !errors.As(err, &errno) {
		return err
	}
	control, failed := raw.SyscallConn()
	if failed != nil {
		return err
	}
	r := &refusal{step: StepHandshake, errno: errno}
	if failed := control.Control(func(fd uintptr) { r.icmp, r.sender = notice(int(fd)) }); failed != nil {
		return err
	}
	return r
}

// question is a DNS query for the IPv4 addresses of a name (RFC 1035).
func question(id uint16, name string) []byte {
	const recursion, typeA, classIN = 1 << 8, 1, 1
	q := binary.BigEndian.AppendUint16(nil, id)
	for _, field := range []uint16{recursion, 1, 0, 0, 0} {
		q = binary.BigEndian.AppendUint16(q, field)
	}
	for label := range strings.SplitSeq(strings.Trim(name, "."), ".") {
		label = label[:min(len(label), 63)]
		q = append(append(q, byte(len(label))), label...)
	}
	q = append(q, 0)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(q, typeA), classIN)
}

var responseCodes = []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}

// readName reads how a DNS server answered. That there is no such name is an
// answer: the cluster's domain may be another one.
func readName(answer, query []byte) (string, error) {
	const headerSize = 12
	if len(answer) < headerSize || !slices.Equal(answer[:2], query[:2]) || answer[2]&0x80 == 0 {
		return "", badAnswer("what came back is no answer of a DNS server")
	}
	code := int(answer[3] & 0x0f)
	text := fmt.Sprintf("RCODE %d", code)
	if code < len(responseCodes) {
		text = responseCodes[code]
	}
	if text != "NOERROR" && text != "NXDOMAIN" {
		return "", badAnswer("the DNS server says " + text)
	}
	return fmt.Sprintf("%s, %d records", text, binary.BigEndian.Uint16(answer[6:])), nil
}

// cut keeps the beginning of a text, in one line.
func cut(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > shortened {
		s = strings.ToValidUTF8(s[:shortened], "") + "…"
	}
	return s
}
