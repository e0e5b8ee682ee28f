// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// Encode writes a value as the JSON decoder makes them, with numbers as
// json.Number. Equal values give equal text: the keys of objects are sorted.
func Encode(value any) json.RawMessage { return AppendEncoded(nil, value) }

// AppendEncoded appends what Encode returns.
func AppendEncoded(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendString(b, v)
	case json.Number:
		return append(b, v...)
	case []any:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendEncoded(b, element)
		}
		return append(b, ']')
	case map[string]any:
		return appendMap(b, v)
	}
	return append(b, standard(value)...)
}

func appendMap(b []byte, fields map[string]any) []byte {
	var few [16]string
	keys := slices.AppendSeq(few[:0], maps.Keys(fields))
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, key), ':')
		b = AppendEncoded(b, fields[key])
	}
	return append(b, '}')
}

// appendString leaves whatever needs care to the standard library.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, standard(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// standard cannot fail for what came from JSON.
func standard(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
