package forge

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Source is one row of the table, without what verifies its deliveries: see Sources.Verification.
type Source struct {
	ID         string
	OrgID      string
	Provider   string // Generic or Local
	RoutingKey string // generic:<org>:<id>
	Method     string // verification method
	CreatedAt  int64  // milliseconds since 1970
	UpdatedAt  int64
	DeletedAt  int64 // 0: not deleted
	Options

	sealed string
}

// Options are what an operator chooses freely for a source. New starts from DefaultOptions.
type Options struct {
	Name                 string // unique among the organisation's sources that are not deleted
	Enabled              bool
	EventTypeHeader      string // lower case; "" none
	EventTypePath        string // dot path into the body, optionally with $. before it
	IdempotencyKeyHeader string
	IdempotencyKeyPath   string
	DedupWindow          time.Duration // for how long an idempotency key is remembered, whole seconds
	MaxPayloadBytes      int64
	AllowedEvents        []string // nil: all
	StripHeaders         []string // lower case; never stored
	RateLimitRPM         int      // deliveries in any 60 seconds
	Local                *LocalConfig
}

// LocalConfig makes a source local: its repositories lie below a folder of the server's machine.
type LocalConfig struct {
	RepoBasePath string `json:"repoBasePath"`           // absolute
	CloneURLBase string `json:"cloneUrlBase,omitempty"` // "": agents clone file://…
}

// Settings are Options together with the verification.
type Settings struct {
	Options
	Verification Verification
}

// MaxRouteBytes is the largest body that any generic source may accept, whatever its own limit says.
const MaxRouteBytes = 10 << 20

// Bounds of what an operator may choose. The rate limit is bounded since a source remembers that many times.
const (
	maxName        = 255
	maxRateLimit   = 100_000
	maxDedupWindow = 30 * 24 * time.Hour
	maxListEntries = 1000
	maxFieldText   = 1024
)

// DefaultOptions are the options of a source about which nothing is said.
func DefaultOptions() Options {
	return Options{
		Enabled:         true,
		DedupWindow:     300 * time.Second,
		MaxPayloadBytes: 1 << 20,
		StripHeaders: []string{"authorization", "cookie", "set-cookie", "proxy-authorization", "x-api-key",
			"x-auth-token"},
		RateLimitRPM: 600,
	}
}

// FieldProblem says what is wrong with one field, by the name that the admin API gives it.
type FieldProblem struct {
	Field   string
	Message string
}

// InvalidError lists everything that is wrong with the settings of a source.
type InvalidError []FieldProblem

func (e InvalidError) Error() string {
	parts := make([]string, len(e))
	for i, p := range e {
		parts[i] = p.Field + ": " + p.Message
	}
	return strings.Join(parts, "; ")
}

func (e *InvalidError) add(field, format string, args ...any) {
	*e = append(*e, FieldProblem{field, fmt.Sprintf(format, args...)})
}

// normalise lower-cases header names, since headers are looked up in lower case, and removes doubles.
func (o *Options) normalise() {
	o.EventTypeHeader = strings.ToLower(strings.TrimSpace(o.EventTypeHeader))
	o.IdempotencyKeyHeader = strings.ToLower(strings.TrimSpace(o.IdempotencyKeyHeader))
	strip := make([]string, 0, len(o.StripHeaders))
	for _, h := range o.StripHeaders {
		if h = strings.ToLower(strings.TrimSpace(h)); h != "" && !slices.Contains(strip, h) {
			strip = append(strip, h)
		}
	}
	o.StripHeaders = strip
}

// check collects what is wrong with the options.
func (o *Options) check(problems *InvalidError) {
	if n := utf8.RuneCountInString(o.Name); n < 1 || n > maxName || !plainText(o.Name) {
		problems.add("name", "must have 1 to %d characters and no control characters", maxName)
	}
	if o.DedupWindow < 0 || o.DedupWindow > maxDedupWindow {
		problems.add("dedupWindowSeconds", "must be from 0 to %d", int(maxDedupWindow.Seconds()))
	}
	if o.MaxPayloadBytes < 1 || o.MaxPayloadBytes > MaxRouteBytes {
		problems.add("maxPayloadBytes", "must be from 1 to %d", MaxRouteBytes)
	}
	if o.RateLimitRPM < 1 || o.RateLimitRPM > maxRateLimit {
		problems.add("rateLimitRpm", "must be from 1 to %d", maxRateLimit)
	}
	checkHeader(problems, "eventTypeHeader", o.EventTypeHeader)
	checkHeader(problems, "idempotencyKeyHeader", o.IdempotencyKeyHeader)
	checkPath(problems, "eventTypePath", o.EventTypePath)
	checkPath(problems, "idempotencyKeyPath", o.IdempotencyKeyPath)
	checkTexts(problems, "allowedEvents", o.AllowedEvents)
	checkTexts(problems, "stripHeaders", o.StripHeaders)
	if o.Local != nil {
		o.Local.check(problems)
	}
}

func checkHeader(problems *InvalidError, field, name string) {
	if name != "" && !headerName(name) {
		problems.add(field, "%q is not the name of an HTTP header", name)
	}
}

func checkPath(problems *InvalidError, field, path string) {
	if len(path) > maxFieldText || !plainText(path) {
		problems.add(field, "must be a dot path such as data.type, at most %d bytes long", maxFieldText)
	}
}

func checkTexts(problems *InvalidError, field string, texts []string) {
	if len(texts) > maxListEntries {
		problems.add(field, "has %d entries, at most %d are allowed", len(texts), maxListEntries)
	}
	for i, s := range texts {
		if s == "" || len(s) > maxName || !plainText(s) {
			problems.add(fmt.Sprintf("%s[%d]", field, i), "must be a text of 1 to %d bytes without control characters", maxName)
		}
	}
}

func (c *LocalConfig) check(problems *InvalidError) {
	if !filepath.IsAbs(c.RepoBasePath) || !plainText(c.RepoBasePath) {
		problems.add("localConfig.repoBasePath", "must be an absolute path, such as /srv/git")
	}
	if c.CloneURLBase == "" {
		return
	}
	u, err := url.Parse(c.CloneURLBase)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https", "ssh", "git", "file"}, u.Scheme):
		problems.add("localConfig.cloneUrlBase", "must be an http, https, ssh, git or file URL")
	case u.RawQuery != "" || u.Fragment != "":
		problems.add("localConfig.cloneUrlBase", "must have neither a query nor a fragment: repository names are appended to it")
	default:
		if _, secret := u.User.Password(); secret {
			// The clone URL is stored with every run and shown to readers.
			problems.add("localConfig.cloneUrlBase", "must not hold a password")
		}
	}
}

// plainText tells whether s is valid UTF-8 without control characters, so that it can be stored, logged and shown.
func plainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

func headerName(s string) bool {
	return len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= 0x20 || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}
