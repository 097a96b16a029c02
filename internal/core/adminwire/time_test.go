package adminwire

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// Times of agents are stored as they were told. Whatever they are, a client must be able to read what a server says of them.
func TestEveryStoredTimeCanBeReadBack(t *testing.T) {
	for _, millis := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 53, -(1 << 53), 253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000, -62_135_596_800_001} {
		raw, err := json.Marshal(At(millis))
		if err != nil {
			t.Errorf("%d: %v", millis, err)
			continue
		}
		var back Time
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Errorf("%d is told as %s, which cannot be read: %v", millis, raw, err)
		}
		if small := millis > -62_135_596_800_000 && millis < 253_402_300_799_999; small && millis != 0 && !back.Equal(time.UnixMilli(millis)) {
			t.Errorf("%d is read back as %v", millis, back)
		}
	}
}
