// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// plainText brings text of any common encoding into UTF-8, with lines that end
// as here.
func plainText(content []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(content, []byte("\xff\xfe")):
		content = fromUTF16(content[2:], func(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 })
	case bytes.HasPrefix(content, []byte("\xfe\xff")):
		content = fromUTF16(content[2:], func(b []byte) uint16 { return uint16(b[1]) | uint16(b[0])<<8 })
	}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if bytes.IndexByte(content, 0) >= 0 {
		return nil, errors.New("it is no text")
	}
	if !utf8.Valid(content) {
		content = repaired(content)
	}
	if bytes.IndexByte(content, '\r') >= 0 {
		content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	}
	return content, nil
}

func fromUTF16(content []byte, unit func([]byte) uint16) []byte {
	units := make([]uint16, 0, len(content)/2)
	for ; len(content) >= 2; content = content[2:] {
		units = append(units, unit(content))
	}
	return []byte(string(utf16.Decode(units)))
}

// repaired makes UTF-8 of a text that is none. With letters of UTF-8 in it, it
// was cut or damaged; without, it is Latin-1.
func repaired(content []byte) []byte {
	for rest := content; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if size > 1 && r != utf8.RuneError {
			return bytes.ToValidUTF8(content, []byte("\uFFFD"))
		}
		rest = rest[size:]
	}
	out := make([]rune, len(content))
	for i, c := range content {
		out[i] = rune(c)
	}
	return []byte(string(out))
}

// failed is a line that a shell, kubectl or a container runtime prints where a
// command gave nothing, or ended before it was done.
var failed = regexp.MustCompile(`(?i)^(\S*sh: .*(not found|no such file|permission denied)|.*: command not found|error from server\b.*|error: .*|` +
	`unable to connect to the server\b.*|the connection to the server .* was refused\b.*|oci runtime exec failed\b.*|` +
	`command terminated with exit code .*|error executing in docker container\b.*|.*executable file not found in \$path.*|killed|terminated)$`)

// failure says why a text is no output, or only a part of one, if it says so
// itself in its first or last line.
func failure(text []byte) string {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 {
		return "it is empty"
	}
	first, _, _ := bytes.Cut(trimmed, []byte("\n"))
	last := trimmed[bytes.LastIndexByte(trimmed, '\n')+1:]
	for _, line := range [][]byte{first, last} {
		const longest = 1000 // a line of JSON is longer
		if line = bytes.TrimSpace(line); len(line) < longest && failed.Match(line) {
			return strings.TrimSpace(string(line))
		}
	}
	return ""
}
