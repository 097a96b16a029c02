package logline

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const at = 1767225600000 // 2026-01-01T00:00:00Z

func TestCodesAreNoText(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[1;31mb\x1b[0mc":       "abc",
		"a\x1b[2K\x1b[1Gb":           "ab",
		"\x1b]8;;http://x\x07link":   "link",
		"\x1b]0;title\x1b\\text":     "text",
		"\x1b]0;no end":              "0;no end",
		"a\x1b(Bb":                   "ab",
		"a\x1b=b\x1b7c":              "abc",
		"cut \x1b":                   "cut ",
		"cut \x1b[12":                "cut ",
		"\x1b[\x1b[1mx":              "x",
		"plain":                      "plain",
		"\x1b\x1b[1mtwice":           "twice",
		"\x1b]0;\x1b[1mnot an end\a": "0;not an end\a",
	} {
		if got := string(Strip([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzLineText stores any text and reads it back as the search sees it.
func FuzzLineText(f *testing.F) {
	f.Add("a \x1b[1mb", "id")
	f.Add("\"},\"meta\":{\"chunk\":\"x\",\"lines\":1}}", `"`)
	f.Add("\x00\x7f\u2028\\u001b", `","meta":{`)
	f.Fuzz(func(t *testing.T, text, id string) {
		want := string(Strip([]byte(strings.ToValidUTF8(text, "\uFFFD"))))
		if strings.IndexByte(want, escape) >= 0 {
			t.Fatalf("%q has a code left", want)
		}
		for _, line := range [][]byte{
			append(AppendText(AppendHead(nil, at), text), plainEnd...),
			bytes.TrimSuffix(AppendMark(AppendText(AppendHead(nil, at), text), Mark{Chunk: id, Lines: 1}), []byte("\n")),
		} {
			got, _ := Text(line, nil)
			if string(got) != want && !invalidRuns(text) {
				t.Fatalf("%q in %q reads %q, want %q", text, line, got, want)
			}
		}
	})
}

// invalidRuns tells whether a text has bytes that are no UTF-8: each becomes a replacement of its own, where the standard
// library makes one of a whole run.
func invalidRuns(text string) bool { return !utf8.ValidString(text) }

// FuzzStoredLine reads anything as a stored line.
func FuzzStoredLine(f *testing.F) {
	f.Add([]byte(`{"ts":"2026-01-01T00:00:00.000Z","level":"stdout","msg":"x","meta":{}}`))
	f.Add([]byte(`{"ts":"","msg":"\u00`))
	f.Add([]byte(`","meta":{}}","msg":"`))
	f.Fuzz(func(t *testing.T, line []byte) {
		text, _ := Text(line, nil)
		if len(text) > len(line) || len(Time(line)) > len(line) {
			t.Fatalf("%q became %q at %q", line, text, Time(line))
		}
		ReadMark(line)
	})
}

// The parts of a log are put together by the times of their lines, which agents choose.
func TestTheTimeOfALineCanAlwaysBeRead(t *testing.T) {
	for _, at := range []int64{0, -1, 1 << 53, -(1 << 53), math.MaxInt64, math.MinInt64} {
		head := string(AppendHead(nil, at))
		text, _, _ := strings.Cut(strings.TrimPrefix(head, `{"ts":"`), `"`)
		if _, err := time.Parse("2006-01-02T15:04:05.000Z", text); err != nil {
			t.Errorf("%d: %s: %v", at, head, err)
		}
	}
}
