package trigger

import (
	"encoding/json"
	"fmt"
	"regexp"

	"kici/internal/core/jsonpath"
	"kici/internal/core/lockfile"
	"kici/internal/kit/jsontree"
	"kici/internal/kit/regex"
)

// slashed is the form of an expected text that is searched for instead of compared. An unknown flag makes it plain text.
var slashed = regexp.MustCompile(`^/([^\n\r\x{2028}\x{2029}]+)/([gimsuy]*)$`)

// entryHolds tells whether some value at the entry's path equals the expected one, or one of those expected.
func entryHolds(entry lockfile.Member, document any) (bool, error) {
	p, err := jsonpath.Parse(entry.Key)
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
	holds, err := p.Search(document, func(actual any) bool {
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
			return regex.Search(parts[1], parts[2], subject)
		}
	}
	return jsonpath.Equal(want, actual), nil
}

// compactMap is the map as JSON.stringify writes it.
func compactMap(m lockfile.Ordered) string {
	raw, err := m.MarshalJSON()
	if err == nil {
		raw, err = jsontree.Stringify(raw)
	}
	if err != nil {
		return err.Error() // a map that was read from a document always writes
	}
	return string(raw)
}
