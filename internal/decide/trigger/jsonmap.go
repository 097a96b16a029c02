package trigger

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"kici/internal/core/jsonpath"
	"kici/internal/core/lockfile"
	"kici/internal/kit/jsontree"
)

// entryHolds tells whether some value at the entry's path equals the expected one, or one of those expected. Texts that are
// to be searched are set aside, so that however many there are, each expression runs but once.
func (t *trace) entryHolds(entry lockfile.Member, document any) (bool, error) {
	p, err := jsonpath.Parse(entry.Key)
	if err != nil {
		return false, err
	}
	plain, expressions, err := expectations(entry.Value)
	if err != nil {
		return false, err
	}
	texts := map[string]bool{}
	holds, err := p.Search(document, &t.matcher.visits, func(actual any) bool {
		if text, ok := actual.(string); ok && len(expressions) > 0 {
			texts[text] = true
		}
		return slices.ContainsFunc(plain, func(want any) bool { return jsonpath.Equal(want, actual) })
	})
	if holds || err != nil || len(texts) == 0 {
		return holds && err == nil, err
	}
	subjects := make([]string, 0, len(texts))
	for text := range texts {
		subjects = append(subjects, text)
	}
	for _, x := range expressions {
		if found, err := t.search(x.source, x.flags, subjects); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// expression is an expected text that is searched for instead of compared.
type expression struct{ source, flags string }

// expectations parts what a value may be: scalars to equal, and expressions, written /source/flags. Objects and lists within
// the list equal nothing.
func expectations(value json.RawMessage) (plain []any, expressions []expression, err error) {
	var expected any
	if err := json.Unmarshal(value, &expected); err != nil {
		return nil, nil, fmt.Errorf("read expected value: %w", err)
	}
	wanted, isList := expected.([]any)
	if !isList {
		wanted = []any{expected}
	}
	for _, want := range wanted {
		text, _ := want.(string)
		if parts := slashed().FindStringSubmatch(text); parts != nil {
			expressions = append(expressions, expression{parts[1], parts[2]})
		} else {
			plain = append(plain, want)
		}
	}
	return plain, expressions, nil
}

// slashed is the form of an expression. An unknown flag makes it plain text.
var slashed = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^/([^\n\r\x{2028}\x{2029}]+)/([gimsuy]*)$`)
})

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
