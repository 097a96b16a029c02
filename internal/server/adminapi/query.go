package adminapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// limitOf is the page size that a caller asks for: the default when it asks for none or nonsense, the maximum when it
// asks for more.
func limitOf(r *http.Request, normal, most int) int {
	n := whole(r, "limit")
	if n <= 0 {
		return normal
	}
	return min(n, most)
}

// offsetOf is how many rows to pass over; nonsense passes over none.
func offsetOf(r *http.Request) int { return max(whole(r, "offset"), 0) }

// whole is a parameter that is a whole number, 0 when it is none, and the nearest there is when it is too large.
func whole(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return n
}

// list is a parameter of comma-separated values, trimmed and each once.
func list(r *http.Request, name string) []string {
	var out []string
	for part := range strings.SplitSeq(r.URL.Query().Get(name), ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}

// moment is a time parameter as epoch milliseconds, 0 when it is absent.
func moment(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "Invalid "+name+" timestamp")
	}
	return t.UnixMilli(), nil
}

// texts are values of one kind as texts.
func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// required refuses a request that lacks one of the parameters, and names all that it needs.
func required(r *http.Request, names ...string) error {
	for _, name := range names {
		if r.URL.Query().Get(name) == "" {
			return refuse(http.StatusBadRequest, strings.Join(names, " and ")+" required")
		}
	}
	return nil
}

// truthy tells whether a switch is on.
func truthy(r *http.Request, name string) bool {
	v := r.URL.Query().Get(name)
	return v == "true" || v == "1"
}
