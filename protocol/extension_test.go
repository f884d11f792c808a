package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// field is a field of the extension as the tests treat all of them.
type field struct {
	appendTo func(dst []byte) []byte
	parse    func(b []byte) (any, error)
	want     any
	tagged   bool // it has tags of its own
}

func offsetsField(o IndividualOffsets) field {
	return field{o.AppendTo, func(b []byte) (any, error) { v, err := ParseIndividualOffsets(b); return v, err }, o, o.Origin != NoOrigin}
}

func filterField(k KeyFilter) field {
	return field{k.AppendTo, func(b []byte) (any, error) { v, err := ParseKeyFilter(b); return v, err }, k, false}
}

func gapsField(g IndividualGaps) field {
	return field{g.AppendTo, func(b []byte) (any, error) { v, err := ParseIndividualGaps(b); return v, err }, g, g.CompleteTo != GapsComplete || g.Pending != nil}
}

func gapsRequestField(g GapsRequest) field {
	return field{g.AppendTo, func(b []byte) (any, error) { v, err := ParseGapsRequest(b); return v, err }, g, g != GapsRequest{}}
}

func stateField(s IndividualState) field {
	return field{s.AppendTo, func(b []byte) (any, error) { v, err := ParseIndividualState(b); return v, err }, s, false}
}

func scannedField(s ScannedTo) field {
	return field{s.AppendTo, func(b []byte) (any, error) { v, err := ParseScannedTo(b); return v, err }, s, false}
}

func appliedField() field {
	return field{FilterApplied{}.AppendTo, func(b []byte) (any, error) { v, err := ParseFilterApplied(b); return v, err }, FilterApplied{}, false}
}

// TestVectors are those of the protocol's documentation.
func TestVectors(t *testing.T) {
	var none []Run
	for vector, f := range map[string]field{
		"0200003fff0100": filterField(KeyFilter{Ranges: []SlotRange{{0, 16383}}}),
		"0300000063ffffffff03086f726465722d310100": filterField(KeyFilter{
			Ranges: []SlotRange{{0, 99}, {65535, 65535}}, Keys: [][]byte{[]byte("order-1"), {}}}),
		"00000000000000050400020201a202e80700000000000000000100": offsetsField(IndividualOffsets{
			Commit: []Run{{5, 7}, {9, 10}, {300, 1300}}, Reopen: none, Origin: NoOrigin}),
		"000000000000000001000000000000000702000100": offsetsField(IndividualOffsets{
			Commit: none, Reopen: []Run{{7, 8}}, Origin: NoOrigin}),
		"00000000000000070200010000000000000000010100080000000000000007": offsetsField(IndividualOffsets{
			Commit: []Run{{7, 8}}, Reopen: none, Origin: 7}),
		"000000000000000c0000000000000003030001030200": gapsField(IndividualGaps{
			MaxCommit: 12, Gaps: []Run{{3, 4}, {7, 9}}, CompleteTo: GapsComplete}),

		"ffffffffffffffff00000000000000000100": gapsField(IndividualGaps{MaxCommit: -1, Gaps: none, CompleteTo: GapsComplete}),
		"00000000000000090000000000000002020001010008000000000000000a": gapsField(IndividualGaps{
			MaxCommit: 9, Gaps: []Run{{2, 3}}, CompleteTo: 10}),
		"00000000000000090000000000000002020001" + "01" + "0138" + "03" + "000000000000004d0001" + "0000000000000005030002030100" +
			"000000000000004e0000" + "000000000000000001" + "0100080000000000000007" + "00": gapsField(IndividualGaps{
			MaxCommit: 9, Gaps: []Run{{2, 3}}, CompleteTo: GapsComplete, Pending: &Pending{CompleteTo: GapsComplete, Transactions: []PendingCommit{
				{ProducerID: 77, ProducerEpoch: 1, Offset: NoOffset, Runs: []Run{{5, 7}, {10, 11}}},
				{ProducerID: 78, Offset: 7},
			}}}),
		"ffffffffffffffff000000000000000001" + "01" + "0102" + "0100": gapsField(IndividualGaps{
			MaxCommit: -1, Gaps: none, CompleteTo: GapsComplete, Pending: &Pending{CompleteTo: GapsComplete}}),
		"000000000000000400000000000000090 0": stateField(IndividualState{Stable: 4, MaxCommit: 9}),
		"00000000000000ff00":                  scannedField(ScannedTo{Next: 255}),
		"00":                                  appliedField(),
		"00 ":                                 gapsRequestField(GapsRequest{}),
		"0100080000000000000011":              gapsRequestField(GapsRequest{From: 17}),
		"01010400000064":                      gapsRequestField(GapsRequest{MaxRuns: 100}),
		"0102040000000a":                      gapsRequestField(GapsRequest{MaxPending: 10}),
		"020008000000000000001101047fffffff":  gapsRequestField(GapsRequest{From: 17, MaxRuns: math.MaxInt32}),
	} {
		b := mustHex(t, strings.ReplaceAll(vector, " ", ""))
		require.Equal(t, hex.EncodeToString(b), hex.EncodeToString(f.appendTo(nil)))
		got, err := f.parse(b)
		require.NoError(t, err, vector)
		requireSameField(t, f.want, got)
		checkTags(t, f)
	}
}

// requireSameField compares without telling nil slices from empty ones.
func requireSameField(t require.TestingT, want, got any) {
	if w, ok := want.(KeyFilter); ok {
		g := got.(KeyFilter)
		require.Equal(t, append([]SlotRange{}, w.Ranges...), append([]SlotRange{}, g.Ranges...))
		require.Equal(t, append([][]byte{}, w.Keys...), append([][]byte{}, g.Keys...))
		return
	}
	require.Equal(t, want, got)
}

// checkTags checks what holds of every field: it is refused when cut or followed by
// anything, and unknown tags at its end are skipped.
func checkTags(t require.TestingT, f field) {
	b := f.appendTo(nil)
	for n := range b {
		_, err := f.parse(b[:n])
		require.ErrorIs(t, err, ErrInvalidExtension)
	}
	_, err := f.parse(append(bytes.Clone(b), 0))
	require.ErrorIs(t, err, ErrInvalidExtension)

	if f.tagged {
		return // the count of its tags is not its last byte
	}
	body := b[:len(b)-1]
	unknown := append(bytes.Clone(body), 2, 5, 3, 'a', 'b', 'c', 0xff, 0xff, 0x03, 0)
	got, err := f.parse(unknown)
	require.NoError(t, err)
	requireSameField(t, f.want, got)
	for _, tags := range [][]byte{
		{2, 6, 0, 5, 0},                      // falling
		{2, 5, 0, 5, 0},                      // twice
		{1, 5, 1},                            // too short
		{2, 5, 0},                            // one is missing
		{0xff, 0xff, 0xff, 0xff, 0x0f, 5, 0}, // many are missing
		{1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f}, // long
		{0x80, 0x80, 0x80, 0x80, 0x80, 0},    // a count of six bytes
	} {
		_, err := f.parse(append(bytes.Clone(body), tags...))
		require.ErrorIs(t, err, ErrInvalidExtension)
	}
}

func drawRuns(t *rapid.T, what string, low int64) []Run {
	var runs []Run
	for range rapid.IntRange(0, 20).Draw(t, what) {
		start := low + rapid.Int64Range(0, 1<<40).Draw(t, what+" skip")
		end := start + rapid.Int64Range(1, 1<<40).Draw(t, what+" length")
		runs = append(runs, Run{start, end})
		low = end + 1
	}
	return runs
}

func TestExtensionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		commit := drawRuns(t, "commit", 0)
		low := int64(0)
		if len(commit) > 0 {
			low = commit[len(commit)-1].End
		}
		o := IndividualOffsets{Commit: commit, Reopen: drawRuns(t, "reopen", low), Origin: rapid.Int64Range(-1, 1<<40).Draw(t, "origin")}
		if len(o.Commit)+len(o.Reopen) == 0 {
			o.Origin = max(o.Origin, 0)
		}
		k := KeyFilter{Keys: rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 5).Draw(t, "keys")}
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			lo := rapid.Uint16().Draw(t, "lo")
			k.Ranges = append(k.Ranges, SlotRange{lo, rapid.Uint16Range(lo, math.MaxUint16).Draw(t, "hi")})
		}
		for _, f := range []field{
			offsetsField(o), filterField(k),
			gapsField(IndividualGaps{MaxCommit: o.Origin, Gaps: commit, CompleteTo: o.Origin}),
			gapsField(IndividualGaps{MaxCommit: low, CompleteTo: GapsComplete, Pending: &Pending{CompleteTo: o.Origin,
				Transactions: []PendingCommit{{ProducerID: low, ProducerEpoch: 3, Offset: o.Origin, Runs: commit}}}}),
			gapsRequestField(GapsRequest{From: o.Origin, MaxRuns: rapid.Int32Range(0, math.MaxInt32).Draw(t, "max runs"),
				MaxPending: rapid.Int32Range(0, math.MaxInt32).Draw(t, "max pending")}),
			stateField(IndividualState{Stable: low, MaxCommit: o.Origin}),
			scannedField(ScannedTo{Next: low}),
		} {
			got, err := f.parse(f.appendTo(nil))
			require.NoError(t, err)
			requireSameField(t, f.want, got)
			require.Equal(t, "kept", string(f.appendTo([]byte("kept"))[:4]))
			checkTags(t, f)
		}
	})
}

// encodedRuns is runs as they are on the wire, right or wrong.
func encodedRuns(base int64, skipsAndLengths ...uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(base))
	b = binary.AppendUvarint(b, uint64(len(skipsAndLengths)/2+1))
	for _, v := range skipsAndLengths {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func TestRuns(t *testing.T) {
	none := encodedRuns(0)
	for name, c := range map[string]struct {
		commit, reopen []byte
		ok             bool
	}{
		"one":                          {encodedRuns(5, 0, 1), none, true},
		"first skips":                  {encodedRuns(5, 3, 1), none, true},
		"base below 0, start not":      {encodedRuns(-5, 8, 1), none, true},
		"start below 0":                {encodedRuns(-5, 2, 1), none, false},
		"empty with another base":      {encodedRuns(77), encodedRuns(1, 0, 1), true},
		"empty with a base below 0":    {encodedRuns(-77), encodedRuns(1, 0, 1), true},
		"adjacent":                     {encodedRuns(5, 0, 1, 0, 1), none, false},
		"empty run":                    {encodedRuns(5, 0, 0), none, false},
		"empty later run":              {encodedRuns(5, 0, 1, 1, 0), none, false},
		"up to the last offset":        {encodedRuns(math.MaxInt64-1, 0, 1), none, true},
		"end overflows":                {encodedRuns(math.MaxInt64, 0, 1), none, false},
		"start overflows":              {encodedRuns(math.MaxInt64, 1, 1), none, false},
		"skip of 2^63":                 {encodedRuns(0, 1<<63, 1), none, false},
		"skip of 2^64-1 back to start": {encodedRuns(5, math.MaxUint64, 1), none, false},
		"length of 2^63":               {encodedRuns(0, 0, 1<<63), none, false},
		"length of 2^64-1":             {encodedRuns(5, 0, math.MaxUint64), none, false},
		"later start overflows":        {encodedRuns(5, 0, math.MaxInt64-10, 20, 1), none, false},
		"all offsets":                  {encodedRuns(0, 0, math.MaxInt64), none, true},
		"nothing at all":               {none, none, false},
		"in both":                      {encodedRuns(0, 0, 10), encodedRuns(9, 0, 1), false},
		"in both, in later runs":       {encodedRuns(0, 0, 1, 10, 5), encodedRuns(3, 0, 1, 11, 1), false},
		"in both, one within":          {encodedRuns(5, 0, 1), encodedRuns(0, 0, 100), false},
		"side by side":                 {encodedRuns(0, 0, 10, 5, 5), encodedRuns(10, 0, 5, 5, 1), true},
		"null commit":                  {append(make([]byte, 8), 0), encodedRuns(1, 0, 1), false},
		"null reopen":                  {encodedRuns(1, 0, 1), append(make([]byte, 8), 0), false},
		"more announced":               {encodedRuns(1, 0, 1)[:10], none, false},
		"skip of 11 bytes":             {append(encodedRuns(1)[:8], 2, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0, 1), none, false},
		"long form of a small skip":    {append(encodedRuns(1)[:8], 2, 0x81, 0, 1), none, true},
	} {
		b := append(append(bytes.Clone(c.commit), c.reopen...), noTags)
		_, err := ParseIndividualOffsets(b)
		if c.ok {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, ErrInvalidExtension, name)
		}
	}
}

func TestOrigin(t *testing.T) {
	empty := append(encodedRuns(0), encodedRuns(0)...)
	origin := func(v int64) []byte { return appendTag64(append(bytes.Clone(empty), 1), 0, v) }
	o, err := ParseIndividualOffsets(origin(5))
	require.NoError(t, err, "it founds the ledger and nothing more")
	require.Equal(t, int64(5), o.Origin)
	for name, b := range map[string][]byte{
		"no origin":        origin(-1),
		"origin below -1":  origin(-2),
		"origin too short": append(bytes.Clone(empty), 1, 0, 7, 0, 0, 0, 0, 0, 0, 5),
		"origin too long":  append(bytes.Clone(empty), 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0),
	} {
		_, err := ParseIndividualOffsets(b)
		require.ErrorIs(t, err, ErrInvalidExtension, name)
	}
	for name, b := range map[string][]byte{
		"max_runs 0":         {1, 1, 4, 0, 0, 0, 0},
		"max_runs below 0":   {1, 1, 4, 0xff, 0xff, 0xff, 0xff},
		"max_runs too short": {1, 1, 3, 0, 0, 1},
		"from too short":     {1, 0, 4, 0, 0, 0, 1},
		"max_pending 0":      {1, 2, 4, 0, 0, 0, 0},
		"max_pending long":   {1, 2, 5, 0, 0, 0, 0, 1},
	} {
		_, err := ParseGapsRequest(b)
		require.ErrorIs(t, err, ErrInvalidExtension, name)
	}
}

func TestPendingRefuses(t *testing.T) {
	producer := []byte{0, 0, 0, 0, 0, 0, 0, 77, 0, 1}
	for name, value := range map[string][]byte{
		"null transactions":     {0, 0},
		"more announced":        slices.Concat([]byte{3}, producer, encodedRuns(0), []byte{0, 0}),
		"many announced":        {0xff, 0xff, 0xff, 0xff, 0x0f, 0},
		"no tags":               {1},
		"an empty run":          slices.Concat([]byte{2}, producer, encodedRuns(5, 0, 0), []byte{0, 0}),
		"an offset too short":   slices.Concat([]byte{2}, producer, encodedRuns(5, 0, 1), []byte{1, 0, 2, 0, 7, 0}),
		"complete_to too short": {1, 1, 0, 2, 0, 7},
		"something follows":     {1, 0, 0},
	} {
		b := append(binary.BigEndian.AppendUint64(nil, 9), encodedRuns(0)...)
		b = append(b, 1, 1, byte(len(value)))
		_, err := ParseIndividualGaps(append(b, value...))
		require.ErrorIs(t, err, ErrInvalidExtension, name)
	}
}

func TestKeyFilterRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"neither":             {1, 1, 0},
		"lo above hi":         {2, 0, 2, 0, 1, 1, 0},
		"null ranges":         {0, 2, 2, 'k', 0},
		"null keys":           {2, 0, 1, 0, 2, 0, 0},
		"null key":            {1, 2, 0, 0},
		"key beyond":          {1, 2, 3, 'k', 0},
		"a range is missing":  {3, 0, 1, 0, 2, 1, 0},
		"many ranges":         {0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1, 0, 2, 1, 0},
		"many keys":           {1, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 'k', 0},
		"range count 33 bits": {0xff, 0xff, 0xff, 0xff, 0x1f, 0, 1, 0, 2, 1, 0},
	} {
		_, err := ParseKeyFilter(b)
		require.ErrorIs(t, err, ErrInvalidExtension, name)
	}
	_, err := ParseKeyFilter((&KeyFilter{Keys: [][]byte{make([]byte, MaxKeyBytes)}}).AppendTo(nil))
	require.NoError(t, err)
	_, err = ParseKeyFilter((&KeyFilter{Keys: [][]byte{make([]byte, MaxKeyBytes+1)}}).AppendTo(nil))
	require.ErrorIs(t, err, ErrInvalidExtension)
}

func TestLimits(t *testing.T) {
	k := KeyFilter{Ranges: make([]SlotRange, MaxKeysAndRanges-1), Keys: [][]byte{{}}}
	_, err := ParseKeyFilter(k.AppendTo(nil))
	require.NoError(t, err)
	k.Keys = append(k.Keys, []byte{})
	_, err = ParseKeyFilter(k.AppendTo(nil))
	require.ErrorIs(t, err, ErrOverLimit)
	require.ErrorIs(t, err, ErrInvalidExtension)
	k = KeyFilter{Keys: make([][]byte, MaxKeysAndRanges+1)}
	_, err = ParseKeyFilter(k.AppendTo(nil))
	require.ErrorIs(t, err, ErrOverLimit)

	var runs []Run
	for i := range int64(MaxRuns) {
		runs = append(runs, Run{2 * i, 2*i + 1})
	}
	_, err = ParseIndividualOffsets((&IndividualOffsets{Commit: runs, Origin: NoOrigin}).AppendTo(nil))
	require.NoError(t, err)
	over := IndividualOffsets{Commit: runs, Reopen: []Run{{5 * MaxRuns, 6 * MaxRuns}}, Origin: NoOrigin}
	_, err = ParseIndividualOffsets(over.AppendTo(nil))
	require.ErrorIs(t, err, ErrOverLimit)
}

// TestBudgetIsShared parses the fields of several partitions of one request.
func TestBudgetIsShared(t *testing.T) {
	three := IndividualOffsets{Commit: []Run{{0, 1}, {2, 3}}, Reopen: []Run{{5, 6}}, Origin: NoOrigin}
	b := three.AppendTo(nil)
	budget := Budget{Runs: 7}
	var o IndividualOffsets
	require.NoError(t, o.Parse(b, &budget))
	require.NoError(t, o.Parse(b, &budget))
	require.Equal(t, 1, budget.Runs)
	require.ErrorIs(t, o.Parse(b, &budget), ErrOverLimit)
}

func TestParseReusesSlices(t *testing.T) {
	o := IndividualOffsets{Commit: []Run{{1, 2}, {4, 9}}, Reopen: []Run{{12, 13}}, Origin: 3}
	b := o.AppendTo(nil)
	var into IndividualOffsets
	require.NoError(t, into.Parse(b, &Budget{Runs: 3}))
	require.Equal(t, o, into)
	g := IndividualGaps{MaxCommit: 9, Gaps: o.Commit, CompleteTo: GapsComplete}
	gapBytes := g.AppendTo(nil)
	var gaps IndividualGaps
	require.NoError(t, gaps.Parse(gapBytes))
	require.Equal(t, g, gaps)
	dst := make([]byte, 0, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		must(into.Parse(b, &Budget{Runs: 3}))
		must(gaps.Parse(gapBytes))
		dst = into.AppendTo(dst[:0])
		dst = gaps.AppendTo(dst[:0])
	}))
}

func TestFeatureNames(t *testing.T) {
	require.Equal(t, "individual.commit.version", FeatureIndividualCommit)
	require.Equal(t, "key.filter.version", FeatureKeyFilter)
	require.Equal(t, "cooperative.delivery.version", FeatureCooperativeDelivery)
	require.Equal(t, 10000, ExtensionTag)
}
