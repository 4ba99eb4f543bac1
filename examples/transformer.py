"""A decoder-only transformer in the usual shape: pre-norm blocks, causal attention, tied embeddings."""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):  # [batch, sequence, hidden]
        batch, sequence, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, sequence, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, layers, hidden, heads, sequence, vocabulary):
        super().__init__()
        if hidden % heads:
            raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}")
        self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens):  # [batch, sequence] -> the loss of foretelling each next token
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def shape_flags(parser, layers, hidden, heads, sequence, batch):
    """The flags of the model's shape, with an example's defaults."""
    for name, value, what in (("layers", layers, "blocks"), ("hidden", hidden, "width"), ("heads", heads, "attention heads"),
                              ("sequence", sequence, "tokens of a sequence"), ("batch", batch, "sequences of a rank and step"),
                              ("vocabulary", 50304, "tokens that there are")):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} ({value})")


def build(args, device, dtype):
    """The model of the flags, the same on every rank: seeded alike."""
    torch.manual_seed(args.seed)
    with torch.device(device):
        return Transformer(args.layers, args.hidden, args.heads, args.sequence, args.vocabulary).to(dtype)
