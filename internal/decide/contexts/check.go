package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/label"
	"kici/internal/kit/regex"
)

// Bounds of what a context holds. Gates and resolutions go through all of it for every job.
const (
	maxListed  = 256  // entries of a list
	maxPattern = 1024 // bytes of a pattern or an entry
)

func checkPatterns(field string, patterns []string) error {
	if len(patterns) > maxListed {
		return fmt.Errorf("%s must have at most %d entries", field, maxListed)
	}
	for i, p := range patterns {
		if err := checkPattern(p); err != nil {
			return fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
	return nil
}

// checkPattern refuses what could never match, and what a database would.
func checkPattern(pattern string) error {
	if len(pattern) > maxPattern {
		return fmt.Errorf("pattern must have at most %d bytes", maxPattern)
	}
	if pattern != ci.CleanText(pattern) {
		return errors.New("pattern must be UTF-8 text without NUL")
	}
	_, err := glob.Compile(pattern)
	return err
}

func checkReviewers(users []string) error {
	if len(users) > maxListed {
		return fmt.Errorf("requiredReviewers must have at most %d entries", maxListed)
	}
	for i, user := range users {
		if user == "" || user != ci.CutName(user) {
			return fmt.Errorf("requiredReviewers[%d] must be a user id of 1 to %d characters", i, ci.MaxName)
		}
	}
	return nil
}

func checkNumber(field string, n *int64, limit int64) error {
	if n != nil && (*n < 0 || *n > limit) {
		return fmt.Errorf("%s must be an integer from 0 to %d, not %d", field, limit, *n)
	}
	return nil
}

// Check tells what of a binding that somebody wants to store is not allowed: an expression over hosts that could take
// exponential time (it says so), for one. Every message names the field.
func (b Binding) Check() error {
	if err := checkPattern(b.ScopePattern); err != nil {
		return fmt.Errorf("scopePattern: %w", err)
	}
	if err := checkHosts(b.HostPattern); err != nil {
		return fmt.Errorf("hostPattern: %w", err)
	}
	return nil
}

func checkHosts(pattern string) error {
	switch end := strings.LastIndexByte(pattern, '/'); {
	case len(pattern) > maxPattern:
		return fmt.Errorf("pattern must have at most %d bytes", maxPattern)
	case pattern != ci.CleanText(pattern):
		return errors.New("pattern must be UTF-8 text without NUL")
	case end > 0 && pattern[0] == '/':
		return regex.Guard(pattern[1:end], pattern[end+1:])
	}
	_, err := label.ParseHostPattern(pattern)
	return err
}

// reservedPrefix begins variables that the server sets itself.
const reservedPrefix = "KICI_"

// CheckVariable tells what of a variable's key and value is not allowed.
func CheckVariable(key, value string) error {
	switch {
	case key == "" || key != ci.CutName(key) || strings.ContainsAny(key, "=\n"):
		return fmt.Errorf("key must have 1 to %d characters, none of them = or a line break", ci.MaxName)
	case strings.HasPrefix(key, reservedPrefix):
		return fmt.Errorf("key must not begin with %s: those variables belong to the server", reservedPrefix)
	case value != ci.CleanText(value):
		return errors.New("value must be UTF-8 text without NUL")
	case len(value) > maxValue:
		return fmt.Errorf("value must have at most %d bytes", maxValue)
	}
	return nil
}

// maxValue bounds a variable, in bytes. A process gets all of them at its start, which the kernel bounds.
const maxValue = 64 << 10

// ReadList reads a stored list of texts. What cannot be read is empty.
func ReadList(stored string) []string {
	list, _ := readTexts(stored)
	return list
}

// ReadReviewers reads the stored list of reviewers; "" and null are none. Unreadable means that there is something else:
// the context must hold then, since leaving out a reviewer would let jobs pass that somebody wanted to see.
func ReadReviewers(stored string) (users []string, unreadable bool) {
	if stored == "" {
		return nil, false
	}
	users, err := readTexts(stored)
	return users, err != nil || slices.Contains(users, "")
}

// readTexts is stricter than unmarshalling, which takes a null for an empty text.
func readTexts(stored string) ([]string, error) {
	var entries []*string
	if err := json.Unmarshal([]byte(stored), &entries); err != nil {
		return nil, err
	}
	list := make([]string, len(entries))
	for i, entry := range entries {
		if entry == nil {
			return nil, errors.New("a list holds something that is not a text")
		}
		list[i] = *entry
	}
	return list, nil
}
