// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// maxUnpacked bounds a release in memory. Packed it fits into an object of the
// API, or into about ten, and text shrinks to a tenth.
const maxUnpacked = 64 << 20

// stored is as much of a release as is read of Helm's own JSON.
type stored struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Version   int    `json:"version"`
	Manifest  string `json:"manifest"`
	Info      struct {
		Status       string `json:"status"`
		LastDeployed string `json:"last_deployed"`
	} `json:"info"`
	Chart struct {
		Metadata struct {
			Name       string `json:"name"`
			Version    string `json:"version"`
			AppVersion string `json:"appVersion"`
		} `json:"metadata"`
		Files []struct {
			Name string `json:"name"`
			Data []byte `json:"data"`
		} `json:"files"`
	} `json:"chart"`
	Hooks []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"hooks"`
}

// Decode reads the field "release" of a Secret or a ConfigMap: JSON in base64,
// with gzip or without. It may be in base64 once more, as kubectl prints it, or
// not at all, as some keep it who split releases.
func Decode(data []byte) (*Release, error) {
	text, err := unpack(data)
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, unreadable(err, text)
	}
	if s.Name == "" || s.Version < 1 {
		return nil, fmt.Errorf("%w: its JSON has no name and revision of one", ErrForeign)
	}
	return s.release(), nil
}

// unreadable says why JSON is not, without any word of it: it has secrets.
func unreadable(err error, text []byte) error {
	syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
	if isSyntax && syntax.Offset >= int64(len(text)) {
		return fmt.Errorf("%w: its JSON ends after %d bytes", ErrTruncated, len(text))
	}
	if wrong, isType := errors.AsType[*json.UnmarshalTypeError](err); isType {
		return fmt.Errorf("%w: its JSON has no %s at %q", ErrCorrupt, wrong.Type, wrong.Field)
	}
	return fmt.Errorf("%w: it is no JSON", ErrCorrupt)
}

// unpack takes a release out of what it is wrapped in.
func unpack(data []byte) ([]byte, error) {
	const deepest = 2
	for range deepest + 1 {
		switch {
		case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
			return gunzip(data)
		case bytes.HasPrefix(data, []byte("{")):
			return data, nil
		}
		var err error
		if data, err = decode64(data); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: there is neither gzip nor JSON in its base64", ErrCorrupt)
}

func decode64(data []byte) ([]byte, error) {
	data = bytes.TrimSpace(data)
	if base64.StdEncoding.DecodedLen(len(data)) > maxUnpacked {
		return nil, fmt.Errorf("%w: it has more than %d MiB", ErrTooLarge, maxUnpacked>>20)
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
	n, err := base64.StdEncoding.Decode(out, data)
	at, isCorrupt := errors.AsType[base64.CorruptInputError](err)
	switch {
	case err == nil && n > 0:
		return out[:n], nil
	case err == nil:
		return nil, fmt.Errorf("%w: there is nothing", ErrTruncated)
	case isCorrupt && isLetter64(data[min(int(at), len(data)-1)]) && int(at) >= len(data)-4:
		return nil, fmt.Errorf("%w: its base64 ends within a group", ErrTruncated)
	}
	return nil, fmt.Errorf("%w: it is no base64: %w", ErrCorrupt, err)
}

// isLetter64 tells a group that ends too early from one with another letter.
func isLetter64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(r, maxUnpacked+1)); err == nil && len(text) <= maxUnpacked {
			return text, nil
		}
	}
	switch {
	case err == nil:
		return nil, fmt.Errorf("%w: unpacked it has more than %d MiB", ErrTooLarge, maxUnpacked>>20)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: its gzip stream ends too early", ErrTruncated)
	}
	return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
}

func (s *stored) release() *Release {
	r := &Release{
		Namespace: s.Namespace, Name: s.Name, Revision: s.Version, Status: s.Info.Status,
		Chart: s.Chart.Metadata.Name, ChartVersion: s.Chart.Metadata.Version, AppVersion: s.Chart.Metadata.AppVersion,
		Manifest: s.Manifest, Definitions: s.definitions(),
	}
	// Helm writes an empty text for a time that is not known.
	r.Modified, _ = time.Parse(time.RFC3339Nano, s.Info.LastDeployed)
	for _, hook := range s.Hooks {
		r.Hooks = append(r.Hooks, hook.Kind+" "+hook.Name)
	}
	return r
}

// definitions are the YAML files of the chart's folder crds. A release does not
// have those of charts within the chart.
func (s *stored) definitions() string {
	var b strings.Builder
	for _, file := range s.Chart.Files {
		switch ext := path.Ext(file.Name); {
		case !strings.HasPrefix(file.Name, "crds/"):
		case ext == ".yaml", ext == ".yml", ext == ".json":
			b.WriteString("---\n")
			b.Write(bytes.TrimSpace(file.Data))
			b.WriteByte('\n')
		}
	}
	return b.String()
}
