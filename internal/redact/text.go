// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// mark stands for a value in a text.
const mark = "(left out)"

// What is a secret by its own form.
var (
	webToken    = regexp.MustCompile(`eyJ[A-Za-z0-9_+/=-]{4,}\.eyJ[A-Za-z0-9_+/=-]*(\.[A-Za-z0-9_+/=-]*)?`)
	bearer      = regexp.MustCompile(`(?i)(bearer +)[A-Za-z0-9._~+/=-]{8,}`)
	urlPassword = regexp.MustCompile("(://)[^/?#\\s\"'`@]*:[^/?#\\s\"'`]*@")
	encodedKey  = regexp.MustCompile(pemInBase64 + `[A-Za-z0-9+/=_-]*`)
	oneLineKey  = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?-----END [A-Z0-9 ]*PRIVATE KEY-----`)
)

// What is one by what stands before it.
var (
	namedQuoted = regexp.MustCompile(`([\w./-]+)((?:\\*["'])?[ \t]*[:=][ \t]*)(\\*["'])`)
	namedPlain  = regexp.MustCompile(`([\w./-]+)((?:\\*["'])?[ \t]*[:=][ \t]*)([^\s"'\\,;&}(][^\s"',;&}]*)`)
	flagged     = regexp.MustCompile(`--([\w.-]+)([\s"',\\]+)([^\s"',;&}\\(-][^\s"',;&}\\]*)`)
	userLogin   = regexp.MustCompile(`((?:^|\s)(?:-u|--user)\s+["']?)[^\s"':]+:[^\s"']+`)
	basicLogin  = regexp.MustCompile(`(?i)(basic +)([A-Za-z0-9+/=]{4,})`)
)

// Tokens returns a text without what is a secret by its own form: keys, tokens,
// and passwords in URLs. It is for tables, whose names may be like those of
// secrets and are none.
func Tokens(s string) string {
	return eachLine(s, func(line string) string {
		if !hasForm(line) {
			return line
		}
		return withoutForms(line)
	})
}

// hasForm is quick, since most lines have nothing.
func hasForm(line string) bool {
	return strings.Contains(line, "eyJ") || strings.Contains(line, "PRIVATE KEY") || strings.Contains(line, pemInBase64) ||
		hasBearer(line) || strings.Contains(line, "://") && hasURLPassword(line)
}

func withoutForms(line string) string {
	line = oneLineKey.ReplaceAllString(line, mark)
	line = encodedKey.ReplaceAllStringFunc(line, func(run string) string {
		if hasEncodedKey(run) {
			return mark
		}
		return run
	})
	line = webToken.ReplaceAllString(line, mark)
	line = bearer.ReplaceAllString(line, "${1}"+mark)
	return urlPassword.ReplaceAllString(line, "${1}"+mark+"@")
}

// Text returns a text, such as a log, without what looks like a secret by its
// form or by what stands before it. Of a line with a secret that cannot be cut
// out only its length is left.
func Text(s string) string {
	key := false // the line before ends with the name of a secret
	return eachLine(s, func(line string) string {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		value, isKey := key && !strings.HasSuffix(line, ":") && len(line) > len(indent), endsWithKey(line)
		key = isKey
		if value && !strings.Contains(line, ": ") && !strings.Contains(line, mark) {
			return indent + mark
		}
		if !lineHasSecret(line) {
			return line
		}
		if line = withoutNamed(withoutForms(line)); lineHasSecret(line) {
			return leftOut + lengthClass(len(line)) + ")"
		}
		return line
	})
}

// endsWithKey finds a key of YAML whose value is in the next line.
func endsWithKey(line string) bool {
	name, isKey := strings.CutSuffix(strings.TrimRight(line, " \t"), ":")
	if !isKey {
		return false
	}
	name = strings.Trim(name, "- \t\"'")
	return wordLength(name) == len(name) && secretName(name)
}

func lineHasSecret(line string) bool {
	return secretText(line) || hasKnownToken(line) || mayHaveLogin(line) && hasLogin(line) || hasEncoded(line)
}

// mayHaveLogin is quick, since most lines have none.
func mayHaveLogin(line string) bool {
	return strings.IndexByte(line, '@') >= 0 || strings.Contains(line, "-u") || strings.Contains(line, "asic ") || strings.Contains(line, "ASIC ")
}

func withoutNamed(line string) string {
	line = quotedValues(line)
	line = namedPlain.ReplaceAllStringFunc(line, func(found string) string {
		part := namedPlain.FindStringSubmatch(found)
		if !secretName(part[1]) || harmless(part[3]) {
			return found
		}
		return part[1] + part[2] + mark
	})
	line = flagged.ReplaceAllStringFunc(line, func(found string) string {
		part := flagged.FindStringSubmatch(found)
		if !secretName(part[1]) || harmless(part[3]) {
			return found
		}
		return "--" + part[1] + part[2] + mark
	})
	line = userLogin.ReplaceAllString(line, "${1}"+mark)
	return basicLogin.ReplaceAllStringFunc(line, func(found string) string {
		part := basicLogin.FindStringSubmatch(found)
		if decoded, err := base64.StdEncoding.DecodeString(part[2]); err != nil || !strings.Contains(string(decoded), ":") {
			return found
		}
		return part[1] + mark
	})
}

// quotedValues leaves out values in quotes up to the quote that ends them.
func quotedValues(line string) string {
	var b strings.Builder
	for {
		at := namedQuoted.FindStringSubmatchIndex(line)
		if at == nil {
			b.WriteString(line)
			return b.String()
		}
		name, quote, begin := line[at[2]:at[3]], line[at[6]:at[7]], at[1]
		b.WriteString(line[:begin])
		line = line[begin:]
		if !secretName(name) {
			continue
		}
		end := closing(line, quote)
		if !harmless(line[:end]) {
			b.WriteString(mark)
			line = line[end:]
		}
	}
}

// closing finds the quote that ends a value, or the end of the line. One with a
// backslash before it is a part of the value, unless the first has one, too.
func closing(s, quote string) int {
	for from := 0; ; {
		at := strings.Index(s[from:], quote)
		if at < 0 {
			return len(s)
		}
		if at += from; at == 0 || s[at-1] != '\\' {
			return at
		}
		from = at + len(quote)
	}
}

// eachLine gives each line to a function, and leaves out private keys, which go
// over several.
func eachLine(s string, each func(line string) string) string {
	var b strings.Builder
	b.Grow(len(s))
	within := 0 // lines that may still be of a key
	for line := range strings.Lines(s) {
		text := strings.TrimRight(line, "\r\n")
		end := line[len(text):]
		switch {
		case within > 0 && strings.Contains(text, "-----END "):
			within = 0
			continue
		case within > 0 && isKeyLine(text):
			within--
			continue
		}
		within = 0
		if before, begins := cutKey(text); begins {
			within = longestKey
			text = before + mark
		}
		b.WriteString(each(text))
		b.WriteString(end)
	}
	return b.String()
}

// longestKey is how many lines a key of 16384 bits has.
const longestKey = 220

// isKeyLine knows the lines of a key, also behind the time that a log puts before
// each: base64, or a header.
func isKeyLine(line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 {
		return true
	}
	const before = 3 // as containers' runtimes write: time, stream, F
	last := words[len(words)-1]
	return len(words) <= before+1 && runLength(last) == len(last) || strings.Contains(line, "Proc-Type:") || strings.Contains(line, "DEK-Info:")
}

// cutKey finds where a private key begins that does not end in its line.
func cutKey(line string) (before string, begins bool) {
	at := strings.LastIndex(line, "PRIVATE KEY-----")
	if at < 0 {
		return line, false
	}
	start := strings.LastIndex(line[:at], "-----")
	if start < 0 || !strings.HasPrefix(line[start:], "-----BEGIN ") {
		return line, false
	}
	return line[:start], true
}
