package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"kici/internal/core/lockfile"
)

// slashed is the form of an expected text that is searched for instead of compared. An unknown flag makes it plain text.
var slashed = regexp.MustCompile(`^/([^\n\r\x{2028}\x{2029}]+)/([gimsuy]*)$`)

// entryHolds tells whether some value at the entry's path equals the expected one, or one of those expected.
func entryHolds(entry lockfile.Member, document any) (bool, error) {
	p, err := parsePath(entry.Key)
	if err != nil {
		return false, err
	}
	var expected any
	if err := json.Unmarshal(entry.Value, &expected); err != nil {
		return false, fmt.Errorf("read expected value: %w", err)
	}
	wanted, isList := expected.([]any)
	if !isList {
		wanted = []any{expected}
	}
	var failed error
	holds, err := p.search(document, func(actual any) bool {
		for _, want := range wanted {
			equal, err := equals(want, actual)
			if equal || err != nil {
				failed = err
				return true
			}
		}
		return false
	})
	if err == nil {
		err = failed
	}
	return holds && err == nil, err
}

// equals compares scalars by type and value. Objects and lists never equal anything.
func equals(want, actual any) (bool, error) {
	text, isText := want.(string)
	subject, found := actual.(string)
	if isText && found {
		if parts := slashed.FindStringSubmatch(text); parts != nil {
			return search(parts[1], parts[2], subject)
		}
	}
	return strictlyEqual(want, actual), nil
}

// compactMap is the map as one line of JSON, in its own order and without the escapes that HTML would want.
func compactMap(m lockfile.Ordered) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, entry := range m {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(jsonText(entry.Key) + ":")
		var value bytes.Buffer
		if err := json.Compact(&value, entry.Value); err != nil {
			value.Reset()
			value.Write(entry.Value) // shown as it is: this is only for people to read
		}
		b.Write(value.Bytes())
	}
	b.WriteByte('}')
	return b.String()
}

func jsonText(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return s // text always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
