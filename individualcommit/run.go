package individualcommit

import "github.com/lacunamq/lacuna/protocol"

// Run is the offsets [Start, End).
type Run = protocol.Run
