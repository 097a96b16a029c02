package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// The log formats. FormatAuto is text on a terminal and JSON otherwise.
const (
	FormatAuto = "auto"
	FormatText = "text"
	FormatJSON = "json"
)

// NewLog makes a log that writes records of level and above to w; give a *slog.LevelVar to change the level later. Each
// line passes through the masks, such as the String of a redactor, and attributes named like a secret are not shown.
//
// JSON lines name things as other services do: timestamp, level, message, error, and runId, jobId, agentId and so on for
// the short names that the code uses.
func NewLog(w io.Writer, level slog.Leveler, format string, masks ...func(string) string) *slog.Logger {
	text := format == FormatText || format != FormatJSON && isTerminal(w)
	if len(masks) > 0 {
		w = maskedWriter{w: w, masks: masks}
	}
	if text {
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: hideSecrets}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: jsonAttr}))
}

// hidden stands for the value of an attribute that is named like a secret.
const hidden = "***REDACTED***"

// secretNames are parts of names that belong to secrets; a name that ends in "key" does, too.
var secretNames = []string{"secret", "token", "password", "psk", "authorization"}

func hideSecrets(_ []string, a slog.Attr) slog.Attr {
	name := strings.ToLower(a.Key)
	switch {
	case a.Value.Kind() != slog.KindString && a.Value.Kind() != slog.KindAny: // numbers and times are no secrets
	case strings.HasSuffix(name, "key") && name != "routingkey",
		slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(name, part) }):
		return slog.String(a.Key, hidden)
	}
	return a
}

// jsonNames are the names in JSON lines of what the code names shortly.
var jsonNames = map[string]string{
	slog.TimeKey: "timestamp", slog.MessageKey: "message", "err": "error", "run": "runId", "job": "jobId",
	"agent": "agentId", "delivery": "deliveryId", "org": "orgId", "request": "requestId", "trace": "traceId",
}

func jsonAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return hideSecrets(groups, a)
	}
	switch {
	case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime:
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	case a.Key == slog.LevelKey:
		a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
	default:
		a = hideSecrets(groups, a)
	}
	if name, ok := jsonNames[a.Key]; ok {
		a.Key = name
	}
	return a
}

// maskedWriter masks whole lines: a handler writes one record at a time, whatever the types of its attributes.
type maskedWriter struct {
	w     io.Writer
	masks []func(string) string
}

func (m maskedWriter) Write(line []byte) (int, error) {
	text := string(line)
	for _, mask := range m.masks {
		text = mask(text)
	}
	if _, err := io.WriteString(m.w, text); err != nil {
		return 0, err
	}
	return len(line), nil
}

// ParseLevel reads debug, info, warn or error; "" is info.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q: use debug, info, warn or error", s)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
