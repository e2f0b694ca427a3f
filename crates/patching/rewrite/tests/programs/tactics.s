# A function for each tactic, without padding but where it says so.
	.text
	.macro function name
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	.endm
	.macro end name
	.cfi_endproc
	.size \name, .-\name
	.endm

	function helper
	lea 3(%rdi), %eax
	add %esi, %eax
	ret
	end helper

	function displaced
	mov $5, %esi
	lea (%rdi,%rsi,2), %eax
	add $7, %eax
	ret
	end displaced

	# The entry reads memory from where it is.
	function relative
	mov value(%rip), %eax
	add %edi, %eax
	add $7, %eax
	ret
	end relative

	# A jump that has no long form.
	function counted
	mov %edi, %ecx
	jrcxz 1f
	lea 1(%rdi), %eax
	add %ecx, %eax
	ret
1:	mov $9, %eax
	ret
	end counted

	function retargeted
	mov $5, %esi
	test $1, %dil
	.byte 0x0f, 0x85 # jne padded
	.long padded - . - 4
	.byte 0xe9 # jmp helper
	.long helper - . - 4
	end retargeted

	function padded
	mov $5, %esi
	lea (%rdi,%rsi,4), %eax
	jmp 1f
	.skip 6, 0xcc
1:	ret
	.skip 24, 0xcc
	end padded

	function shortened
	mov $5, %esi
	call helper
	test $1, %al
	je 1f
	lea 1(%rax,%rax), %eax
1:	xor $2, %al
	ret
	end shortened

	# Far from all padding.
	function before
	.rept 60
	call helper
	.endr
	ret
	end before

	function copied
	add $3, %eax
	dec %edi
	jns copied
	ret
	end copied

	function evicted
	mov $5, %esi
	call helper
	mov $3, %ecx
	mov $4, %edx
	test $1, %al
	je 1f
	add %ecx, %eax
1:	xor %edx, %eax
	ret
	end evicted

	# The exit's jump ends with the two bytes of `xor %edx, %eax`.
	function punned
	mov $5, %esi
	call helper
	test $1, %al
	je 2f
1:	xor %esi, %eax
	ret
2:	xor %edx, %eax
	jmp 1b
	end punned

	# Its own bytes are too few, and no code in reach may be moved.
	function small
	lea 1(%rdi), %eax
	ret
	end small

	# Its return has one byte. A long jump, a short one and the code before it lead there.
	function returns
	mov $5, %esi
	test $1, %dil
	.byte 0x0f, 0x84 # je 1f
	.long 1f - . - 4
	call helper
	test $2, %al
	je 1f
	lea 1(%rax,%rax), %eax
1:	ret
	call helper
	end returns

	function after
	.rept 60
	call helper
	.endr
	ret
	end after

	# Ten bytes of the function behind it make place.
	function neighboured
	lea 2(%rdi), %eax
	ret
	end neighboured

	function neighbour
	mov $5, %esi
	call helper
	mov $3, %ecx
	mov $4, %edx
	call helper
	.byte 0xe9 # jmp helper
	.long helper - . - 4
	end neighbour

	# Nothing but pushes before the first call.
	function called
	push %rbx
	call displaced
	mov %eax, %ebx
	lea 3(%rbx,%rbx), %eax
	pop %rbx
	.byte 0xe9 # jmp displaced
	.long displaced - . - 4
	end called

	.data
value:	.long 1234
	.section .note.GNU-stack, "", @progbits
