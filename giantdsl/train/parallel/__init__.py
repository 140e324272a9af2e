"""What happens to parameters, gradients and optimizer state on many ranks.

ownership   which part of a logical parameter a rank holds, and where an element counts
buckets     how gradients are packed to be summed, and who owns which piece (ZeRO)
shares      what a microbatch is of the whole batch, over ranks
sums        sums over a group that give the same bits whatever is packed with what
reducer     gradients: summed while the last backward pass still runs
weights     masters: whole, divided (zero 1, 2) or fully sharded (zero 3)
means       Adafactor's means over tensors of which a rank holds a part
verdict     norm, losses and what is not finite, known on all ranks
optimizer   all of it together; `step` uses it
whole       whole logical tensors on rank 0, and back
replicas    are the copies still the same?
"""
