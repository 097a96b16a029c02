package ci

import (
	"strings"

	"github.com/google/uuid"
)

// DeriveID makes an id of a time, in epoch milliseconds, and of names within a space of them, so that whoever makes it again
// makes the same. It is a UUID of version 7 (RFC 9562, section 5.7) with a hash for its random part: ids rise with the time,
// so the rows that are made together lie together in every index, and a commit writes few pages.
func DeriveID(space uuid.UUID, at int64, names ...string) string {
	id := uuid.NewSHA1(space, []byte(strings.Join(names, "\x00")))
	for i := range 6 {
		id[i] = byte(at >> (8 * (5 - i)))
	}
	id[6] = 7<<4 | id[6]&0x0f
	return id.String()
}

// DeriveBeside makes an id of another one and of names within a space of them. It has the time of the other id where that has
// one.
func DeriveBeside(space uuid.UUID, other string, names ...string) string {
	names = append([]string{other}, names...)
	id, err := uuid.Parse(other)
	if err != nil || id.Version() != 7 {
		return uuid.NewSHA1(space, []byte(strings.Join(names, "\x00"))).String()
	}
	seconds, nanoseconds := id.Time().UnixTime()
	return DeriveID(space, seconds*1000+nanoseconds/1e6, names...)
}
