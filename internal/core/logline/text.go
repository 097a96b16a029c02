package logline

import "bytes"

var messageStart = []byte(`","msg":"`)

// Time is the time of a stored line as it is written.
func Time(line []byte) string {
	rest, ok := bytes.CutPrefix(line, lineStart)
	if i := bytes.IndexByte(rest, '"'); ok && i >= 0 {
		return string(rest[:i])
	}
	return ""
}

// Text is the text of a stored line without ANSI codes. It lies in the line or, when it is not there as it stands, in
// buf, which is given back for the next line.
func Text(line, buf []byte) (text, _ []byte) {
	begin := bytes.Index(line, messageStart) // the time and the level before it hold no quote
	stop := len(line) - len(plainEnd)
	if !bytes.HasSuffix(line, plainEnd) {
		stop = bytes.LastIndex(line, metaStart)
	}
	if begin < 0 || stop < begin+len(messageStart) {
		return nil, buf // nothing of ours
	}
	text = line[begin+len(messageStart) : stop]
	if bytes.IndexByte(text, '\\') < 0 {
		return text, buf
	}
	buf = appendUnescaped(buf[:0], text)
	return Strip(buf), buf
}

// appendUnescaped appends what AppendText made of a text.
func appendUnescaped(buf, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return append(buf, text...)
		}
		buf = append(buf, text[:i]...)
		c, length := text[i+1], 2
		switch c {
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			if length = 6; len(text)-i < length {
				return buf
			}
			c = hexValue(text[i+4])<<4 | hexValue(text[i+5]) // it writes no greater ones
		}
		buf, text = append(buf, c), text[i+length:]
	}
}

func hexValue(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

const escape = 0x1b

// Strip takes the ANSI codes (ECMA-48) out of a text, in place.
func Strip(text []byte) []byte {
	kept := text[:0]
	for {
		i := bytes.IndexByte(text, escape)
		if i < 0 {
			return append(kept, text...)
		}
		kept = append(kept, text[:i]...)
		text = text[i+codeLength(text[i:]):]
	}
}

// codeLength is the length of the code that begins with an escape. One that is cut short ends where the text does not go
// on as a code would.
func codeLength(text []byte) int {
	if len(text) < 2 {
		return 1
	}
	switch text[1] {
	case '[': // control sequence: parameters, intermediates, one final byte
		return within(text, 2, 0x20, 0x3f, 0x40)
	case ']', 'P', 'X', '^', '_': // string, up to BEL or ESC \
		return stringLength(text)
	}
	return within(text, 1, 0x20, 0x2f, 0x30)
}

// within passes over bytes from low to high, and one final byte of at least final.
func within(text []byte, i int, low, high, final byte) int {
	for i < len(text) && low <= text[i] && text[i] <= high {
		i++
	}
	if i < len(text) && final <= text[i] && text[i] <= 0x7e {
		i++
	}
	return i
}

// stringLength is the length of a string code. One without an end is only its two first bytes: the rest may be text.
func stringLength(text []byte) int {
	for i := 2; i < len(text); i++ {
		if text[i] == 0x07 {
			return i + 1
		}
		if text[i] == escape {
			if i+1 < len(text) && text[i+1] == '\\' {
				return i + 2
			}
			break
		}
	}
	return 2
}
